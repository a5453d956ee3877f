// SPDX-License-Identifier: MIT
// Who asked for it, and whether it may be. What it does is in balance_step.cc.
#include "fs/maintain/balance.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "fs/txn/group_planning.h"

namespace cowraid {

namespace {

using State = BalanceStatus::State;

constexpr const char* kBusyRoom = "there is no room for what is being written; try again, or remove files";

VolumeProfiles committed_profiles(const Volume& volume)
{
    return {volume.superblock().data_profile, volume.superblock().metadata_profile};
}

Status refuse(std::string& why, Err err, std::string text)
{
    why = std::move(text);
    return err;
}

State state_of(const BalanceRecord& record)
{
    return record.state == BalanceState::kNone      ? State::kNone
           : record.state == BalanceState::kRunning ? State::kRunning
                                                    : State::kPaused;
}

}  // namespace

const char* balance_state_name(BalanceStatus::State state)
{
    constexpr const char* kNames[] = {"none", "running", "paused", "finished", "cancelled"};
    return kNames[static_cast<size_t>(state)];
}

// What a new balance would do. Changes nothing.
class Balance::PlanOrder final : public CommitOrder {
public:
    PlanOrder(Balance& balance, const BalanceOptions& options) : balance_(balance), options_(options) { }

    Status apply(std::string& why) override
    {
        balance_.notice_end();
        BalanceRecord record;
        CW_TRY(balance_.make_record(options_, record, why));
        const Status status = balance_.assess(options_, record, plan_, why);
        plan_.damaged_blocks = balance_.damaged_blocks(record, options_.profiles);
        balance_.store_.volume.choose_groups({});
        return status;
    }
    [[nodiscard]] bool changes() const override { return false; }
    [[nodiscard]] const BalancePlan& plan() const { return plan_; }

private:
    Balance& balance_;
    const BalanceOptions options_;
    BalancePlan plan_;
};

// A new balance, or what becomes of the one there is.
class Balance::Order final : public CommitOrder {
public:
    Order(Balance& balance, const BalanceOptions& options) : balance_(balance), options_(options) { }
    Order(Balance& balance, State next) : balance_(balance), next_(next) { }

    Status apply(std::string& why) override
    {
        balance_.notice_end();
        return next_ == State::kNone ? balance_.begin(options_, why) : balance_.change(next_, why);
    }
    void applied() override { balance_.avoid_groups(); }

private:
    Balance& balance_;
    const BalanceOptions options_{};
    const State next_ = State::kNone;
};

Balance::Balance(Store& store, EmptyGroups& empty_groups, CommitOrders& orders, Cleaner& cleaner)
    : store_(store), empty_groups_(empty_groups), cleaner_(cleaner), orders_(orders)
{
    const BalanceRecord& record = store.volume.superblock().balance;
    enter(state_of(record), record, committed_profiles(store.volume));
}

uint64_t Balance::run_ms() const
{
    const bool runs = status_.state == State::kRunning && !status_.waits_for_room;
    return status_.run_ms + (runs ? monotonic_ms() - running_since_ms_ : 0);
}

void Balance::set_waits_for_room(bool waits, uint64_t since_ms)
{
    if (status_.waits_for_room == waits)
        return;
    status_.run_ms = run_ms();
    running_since_ms_ = since_ms;
    status_.waits_for_room = waits;
}

// `started`: of one that begins now.
void Balance::enter(State state, const BalanceRecord& record, const VolumeProfiles& profiles,
                    uint64_t started)
{
    const bool has_device = !store_.volume.members().path(record.member).empty();
    MutexLock lock(mutex_);
    const bool was_active = status_.active();
    status_.run_ms = run_ms();
    running_since_ms_ = monotonic_ms();
    status_.state = state;
    status_.profiles = profiles;
    if (!status_.active()) {
        status_.ended = was_active ? static_cast<uint64_t>(std::time(nullptr)) : 0;
        if (const uint64_t rate = measured_rate(status_.moved_bytes, status_.run_ms); rate > 0)
            status_.rate = rate;
        return;
    }
    status_.content = record.content & kAllContent;
    status_.chosen = (record.content & kBalanceChosen) != 0;
    status_.convert = record.before.value == 0 && record.member.value == 0;
    status_.member = record.member;
    status_.has_device = has_device;
    status_.shrink_bytes = record.shrink_bytes;
    if (was_active)
        return;
    status_.bytes_total = record.total_bytes;
    status_.started = started;
    status_.ended = status_.moved_bytes = status_.run_ms = 0;
    status_.bytes_left = record.total_bytes;
    status_.groups_left = status_.groups_total = status_.groups_stuck = 0;
    status_.waits_for_room = false;
    looked_.reset();
}

BalanceStatus Balance::status() const
{
    const bool degraded = store_.volume.degraded();
    MutexLock lock(mutex_);
    BalanceStatus status = status_;
    status.degraded = degraded;
    status.run_ms = run_ms();
    status.held_back = status.state == State::kRunning && store_.budget.holds_back();
    // The next mount that may write goes on with it.
    status.read_only = status.state == State::kRunning && !store_.service.writing();
    if (status.read_only)
        status.state = State::kPaused;
    return status;
}

Status Balance::start(const BalanceOptions& options, std::string& why)
{
    return orders_.carry_out(Ref<CommitOrder>(new Order(*this, options)), why);
}

Status Balance::plan(const BalanceOptions& options, BalancePlan& plan, std::string& why)
{
    const Ref<PlanOrder> order = make_ref<PlanOrder>(*this, options);
    CW_TRY(orders_.carry_out(Ref<CommitOrder>(order.get()), why));
    plan = order->plan();
    plan.rate = status().rate;
    return {};
}

Status Balance::pause(std::string& why)
{
    return orders_.carry_out(Ref<CommitOrder>(new Order(*this, State::kPaused)), why);
}

Status Balance::resume(std::string& why)
{
    return orders_.carry_out(Ref<CommitOrder>(new Order(*this, State::kRunning)), why);
}

Status Balance::cancel(std::string& why)
{
    return orders_.carry_out(Ref<CommitOrder>(new Order(*this, State::kCancelled)), why);
}

Status Balance::make_record(const BalanceOptions& options, BalanceRecord& record, std::string& why)
{
    if (const BalanceStatus now = status(); now.active())
        return refuse(why, Err::kBusy,
                      std::string(now.member.value == 0   ? "a balance is under way"
                                  : now.shrink_bytes == 0 ? "a member is being removed"
                                                          : "a member is being made smaller") +
                          (now.state == State::kPaused
                               ? ", and paused; cowraid balance resume lets it go on, "
                                 "cowraid balance cancel ends it"
                               : "; see cowraid balance status"));
    record = {.state = BalanceState::kRunning,
              .content = options.content,
              .usage_max = 100,
              .member = options.member,
              .before = options.convert || options.member.value != 0
                            ? Generation{}
                            : store_.volume.superblock().generation.next(),
              .total_bytes = 0,
              .shrink_bytes = options.shrink_bytes};
    return options.data.all() && options.metadata.all() && options.system.all()
               ? Status()
               : choose_groups(options, record, why);
}

// That the list of damage has in groups that it would empty.
uint64_t Balance::damaged_blocks(const BalanceRecord& record, const VolumeProfiles& profiles) const
{
    uint64_t blocks = 0;
    for (const DamagedRun& run : store_.damage.runs()) {
        const Ref<const ArrayGroup> group = store_.volume.array().group_at(run.first);
        const auto numbers = group ? store_.allocator.numbers_of(group->record.address) : std::nullopt;
        blocks += numbers && selects(record, profiles, *numbers) ? run.block_count : 0;
    }
    return blocks;
}

// Those that the filters let through, of each content as many as its limit says, the emptiest first.
Status Balance::choose_groups(const BalanceOptions& options, BalanceRecord& record, std::string& why)
{
    std::set<VolumeAddress> chosen;
    for (const auto& [content, filter] :
         {std::pair(kGroupData, &options.data), std::pair(kGroupMetadata, &options.metadata),
          std::pair(kGroupSystem, &options.system)}) {
        if ((options.content & content) == 0)
            continue;
        std::vector<GroupNumbers> groups = store_.allocator.group_numbers(content);
        std::erase_if(groups, [&, by = filter](const GroupNumbers& numbers) {
            const Ref<const ArrayGroup> group = store_.volume.array().group_at(numbers.address);
            // One that holds nothing would use a limit up without anything being moved.
            const bool counts = by->limit.all() || by->usage.most == 0 || numbers.live_blocks > 0;
            return !counts || !selects(record, options.profiles, numbers) || !by->matches(*group, numbers);
        });
        if (groups.size() < filter->limit.least)
            return refuse(why, Err::kInvalid,
                          "the filters let " + std::to_string(groups.size()) +
                              " block groups through, and limit= wants " +
                              std::to_string(filter->limit.least) + " or more");
        std::stable_sort(groups.begin(), groups.end(), [](const GroupNumbers& a, const GroupNumbers& b) {
            return a.live_blocks < b.live_blocks;
        });
        for (size_t i = 0; i < groups.size() && i < filter->limit.most; ++i)
            chosen.insert(groups[i].address);
    }
    record.content |= kBalanceChosen;
    store_.volume.choose_groups(std::move(chosen));
    return {};
}

Status Balance::begin(const BalanceOptions& options, std::string& why)
{
    BalanceRecord record;
    CW_TRY(make_record(options, record, why));
    BalancePlan plan;
    CW_TRY(assess(options, record, plan, why));
    if (!store_.ledger.try_lower_room(plan.offered_blocks))
        return refuse(why, Err::kNoSpace, kBusyRoom);
    record.total_bytes = plan.moved_bytes;
    store_.volume.set_balance(record, options.profiles);
    try_all_groups();
    position_ = {};
    found_any_ = false;
    empty_passes_ = 0;
    enter(State::kRunning, record, options.profiles, static_cast<uint64_t>(std::time(nullptr)));
    if (options.shrink_bytes != 0)
        CW_LOG_INFO("%s is emptied beyond %s, to be made smaller",
                    store_.volume.members().name(options.member).c_str(),
                    size_text(options.shrink_bytes).c_str());
    else if (options.member.value != 0)
        CW_LOG_INFO("%s is emptied, to be removed", store_.volume.members().name(options.member).c_str());
    else
        CW_LOG_INFO("balance begins: new block groups are %s for data, %s for metadata",
                    find_profile(options.profiles.data)->name, find_profile(options.profiles.metadata)->name);
    return {};
}

Status Balance::change(State next, std::string& why)
{
    BalanceRecord record = store_.volume.superblock().balance;
    const State now = status().state;
    if (next == State::kPaused && now != State::kRunning)
        return refuse(why, Err::kInvalid, "no balance is running");
    if (next == State::kRunning && now != State::kPaused)
        return refuse(why, Err::kInvalid, "no balance is paused");
    if (next == State::kCancelled && now != State::kRunning && now != State::kPaused)
        return refuse(why, Err::kInvalid, "no balance is running or paused");
    // Meanwhile the member's room was for everybody.
    BalancePlan plan;
    if (next == State::kRunning && record.member.value != 0) {
        CW_TRY(assess({.profiles = committed_profiles(store_.volume),
                       .content = record.content,
                       .member = record.member,
                       .shrink_bytes = record.shrink_bytes,
                       .force = true},
                      record, plan, why));
        if (!store_.ledger.try_lower_room(plan.offered_blocks))
            return refuse(why, Err::kNoSpace, kBusyRoom);
    }
    record.state = next == State::kPaused ? BalanceState::kPaused : BalanceState::kRunning;
    if (next == State::kRunning) {
        count_left();
        try_all_groups();
    } else {
        reopen_groups();
    }
    if (next == State::kCancelled)
        record = {};
    store_.volume.set_balance(record, committed_profiles(store_.volume));
    enter(next, record, committed_profiles(store_.volume));
    return {};
}

// What could not be read may be readable by now.
void Balance::try_all_groups()
{
    store_.stuck_groups.clear();
    cleaner_.forget_set_aside();
    empty_groups_.try_again();
}

// All take blocks as ever, but those that are about to leave.
void Balance::reopen_groups()
{
    const BalanceRecord& balance = store_.volume.superblock().balance;
    const VolumeProfiles profiles = committed_profiles(store_.volume);
    for (const GroupNumbers& numbers : store_.allocator.group_numbers(kAllContent)) {
        store_.allocator.set_avoided(numbers.address, false);
        const Ref<const ArrayGroup> group = store_.volume.array().group_at(numbers.address);
        if (group && numbers.closed && !empty_groups_.is_leaving(numbers.address) &&
            !store_.remap.is_emptying(numbers.address) &&
            store_.volume.selects(balance, profiles, group->record))
            store_.allocator.set_group_state(numbers.address, Allocator::GroupState::kOpen);
    }
    sort_degraded_groups(store_);
    refresh_budget(store_);
}

}  // namespace cowraid
