// SPDX-License-Identifier: MIT
// Who asked for it, and whether it may be. What it does is in balance_step.cc.
#include "fs/maintain/balance.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "fs/txn/group_planning.h"

namespace cowraid {

namespace {

using State = BalanceStatus::State;

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

private:
    Balance& balance_;
    const BalanceOptions options_{};
    const State next_ = State::kNone;
};

Balance::Balance(Store& store, const EmptyGroups& empty_groups, CommitOrders& orders, Cleaner& cleaner)
    : store_(store), empty_groups_(empty_groups), cleaner_(cleaner), orders_(orders)
{
    const BalanceRecord& record = store.volume.superblock().balance;
    enter(state_of(record), record, committed_profiles(store.volume));
}

void Balance::enter(State state, const BalanceRecord& record, const VolumeProfiles& profiles)
{
    MutexLock lock(mutex_);
    const bool was_active = status_.active();
    status_.state = state;
    status_.profiles = profiles;
    if (!status_.active()) {
        status_.ended = static_cast<uint64_t>(std::time(nullptr));
        return;
    }
    status_.content = record.content;
    status_.usage_max = record.usage_max;
    status_.convert = record.before.value == 0 && record.member.value == 0;
    status_.member = record.member;
    status_.bytes_total = record.total_bytes;
    if (was_active)
        return;
    status_.started = static_cast<uint64_t>(std::time(nullptr));
    status_.ended = 0;
    status_.bytes_left = record.total_bytes;
}

BalanceStatus Balance::status() const
{
    MutexLock lock(mutex_);
    return status_;
}

Status Balance::start(const BalanceOptions& options, std::string& why)
{
    return orders_.carry_out(Ref<CommitOrder>(new Order(*this, options)), why);
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

Status Balance::begin(const BalanceOptions& options, std::string& why)
{
    if (status().active())
        return refuse(
            why, Err::kBusy,
            std::string(status().member.value != 0 ? "a member is being removed" : "a balance is under way") +
                "; see cowraid balance status");
    BalanceRecord record{.state = BalanceState::kRunning,
                         .content = options.content,
                         .usage_max = options.usage_max,
                         .member = options.member,
                         .before = options.convert || options.member.value != 0
                                       ? Generation{}
                                       : store_.volume.superblock().generation.next(),
                         .total_bytes = 0};
    CW_TRY(assess(options, record, why));
    uint64_t live_blocks = 0;
    for (const GroupNumbers& numbers : store_.allocator.group_numbers(kAllContent))
        live_blocks += selects(record, options.profiles, numbers) ? numbers.live_blocks : 0;
    record.total_bytes = live_blocks * kBlockBytes;
    store_.volume.set_balance(record, options.profiles);
    stuck_.clear();
    position_ = {};
    found_any_ = false;
    empty_passes_ = 0;
    enter(State::kRunning, record, options.profiles);
    if (options.member.value != 0)
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
    if (next == State::kRunning && record.member.value != 0)
        CW_TRY(assess({.profiles = committed_profiles(store_.volume),
                       .content = record.content,
                       .member = record.member},
                      record, why));
    record.state = next == State::kPaused ? BalanceState::kPaused : BalanceState::kRunning;
    if (next != State::kRunning)
        reopen_groups();
    if (next == State::kCancelled)
        record = {};
    store_.volume.set_balance(record, committed_profiles(store_.volume));
    enter(next, record, committed_profiles(store_.volume));
    return {};
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
    close_degraded_groups(store_);
    refresh_budget(store_);
}

Status Balance::assess(const BalanceOptions& options, const BalanceRecord& record, std::string& why) const
{
    const VolumeProfiles now = committed_profiles(store_.volume);
    for (const auto& [before, after] :
         {std::pair(now.data, options.profiles.data), std::pair(now.metadata, options.profiles.metadata)})
        CW_TRY(assess_profile(*find_profile(before), *find_profile(after), options.force, why));
    if (options.member.value != 0)
        CW_TRY(assess_removal(options, why));
    if (now.metadata != options.profiles.metadata)
        CW_TRY(assess_nodes(options, record, why));
    return assess_room(options, record, why);
}

Status Balance::assess_profile(const Profile& now, const Profile& then, bool force, std::string& why) const
{
    if (now.id == then.id)
        return {};
    const size_t members = voter_count(store_.volume.superblock(), store_.volume.missing_members());
    if (members < then.min_members)
        return refuse(why, Err::kInvalid,
                      std::string(then.name) + " needs " + std::to_string(then.min_members) +
                          " devices; the volume has " + std::to_string(members) + " in service");
    if (then.tolerance < now.tolerance && !force)
        return refuse(why, Err::kInvalid,
                      std::string("after converting ") + now.name + " to " + then.name +
                          " the volume survives the loss of " + std::to_string(then.tolerance) +
                          " devices instead of " + std::to_string(now.tolerance) +
                          "; --force does it all the same");
    return {};
}

// The others can have everything, and a majority is left.
Status Balance::assess_removal(const BalanceOptions& options, std::string& why) const
{
    const Volume& volume = store_.volume;
    const std::string member = "member " + std::to_string(options.member.value);
    if (volume.superblock().member(options.member) == nullptr)
        return refuse(why, Err::kInvalid, "there is no " + member + "; see cowraid filesystem show");
    if (volume.superblock().replace.names(options.member))
        return refuse(why, Err::kBusy,
                      member + " is part of a replacement; wait for its end, or cowraid replace cancel");
    if (!volume.may_remove_member(options.member))
        return refuse(why, Err::kInvalid,
                      "without " + member +
                          " too few devices are in service; remove those that are missing "
                          "first, or add one");
    std::vector<MemberId> gone = volume.missing_members();
    gone.push_back(options.member);
    const size_t left = voter_count(volume.superblock(), gone);
    for (const Profile* profile :
         {&volume.data_profile(), &volume.metadata_profile(), &volume.system_profile()})
        if (left < profile->min_members)
            return refuse(why, Err::kInvalid,
                          std::string(profile->name) + " needs " + std::to_string(profile->min_members) +
                              " devices; without " + member + " there are " + std::to_string(left) +
                              "; convert first, or add one");
    return {};
}

// Whether a balance would empty the group.
bool Balance::selects(const BalanceRecord& record, const VolumeProfiles& profiles,
                      const GroupNumbers& numbers) const
{
    const Ref<const ArrayGroup> group = store_.volume.array().group_at(numbers.address);
    return group && store_.volume.selects(record, profiles, group->record) &&
           numbers.live_blocks * 100 <= record.usage_max * numbers.total_blocks;
}

// Room for new groups of nodes: for the first one to be emptied now, and in the end for all.
Status Balance::assess_nodes(const BalanceOptions& options, const BalanceRecord& record,
                             std::string& why) const
{
    const Profile& profile = *find_profile(options.profiles.metadata);
    const Volume& volume = store_.volume;
    uint64_t moving = 0, staying = 0, largest = 0, first = UINT64_MAX;
    for (const GroupNumbers& numbers : store_.allocator.group_numbers(kGroupMetadata | kGroupSystem)) {
        if (!selects(record, options.profiles, numbers)) {
            staying += numbers.open() ? numbers.free_row_blocks : 0;
            continue;
        }
        moving += numbers.live_blocks;
        largest = std::max(largest, numbers.total_blocks);
        first = std::min(first, numbers.live_blocks);
    }
    if (moving == 0)
        return {};
    const SpaceNumbers data = store_.allocator.numbers(kGroupData);
    const uint64_t in_groups = data.free_row_blocks + data.partial_row_blocks;
    const uint64_t reserved = store_.ledger.reserved_data();
    const uint64_t beside = reserved - std::min(reserved, in_groups);
    const bool may_plan = volume.degraded() || volume.keeps_slots_for(kGroupMetadata, options.profiles) ||
                          store_.ledger.data_available() > data_beside_nodes(store_, profile);
    const auto room = [&](bool emptied) {
        return staying +
               (may_plan ? volume.node_potential_in_balance(record, options.profiles, emptied, beside) : 0);
    };
    // What is kept ahead of commits grows with new groups.
    const uint64_t ahead = metadata_ahead(store_, kGroupMetadata);
    const uint64_t begin_needs = ahead / 2 + first * 5 / 3;
    const uint64_t end_needs = moving + largest + ahead / 2;
    const bool begins = room(false) >= begin_needs;
    if (begins && room(true) >= end_needs)
        return {};
    return refuse(why, Err::kNoSpace,
                  std::string("there is no room for metadata as ") + profile.name + ": " +
                      size_text((begins ? end_needs : begin_needs) * kBlockBytes) +
                      " of new block groups would be needed, and there is room for " +
                      size_text(room(begins) * kBlockBytes) + "; remove files or add devices");
}

// Room for the first group there must be now. Room for the last one there must be while its own slots are not
// back; what is in between needs no more, because the emptiest come first.
Status Balance::assess_room(const BalanceOptions& options, const BalanceRecord& record,
                            std::string& why) const
{
    const Profile& profile = *find_profile(options.profiles.data);
    const size_t left = voter_count(store_.volume.superblock(), {options.member});
    const auto members = static_cast<double>(std::max<size_t>(profile.min_members, left));
    const double share = (members - profile.parity) / members / profile.copies;  // of slots that is data
    uint64_t moving = 0, staying = 0,
             largest = 0;  // of these: free, in groups that stay; slots of one, as data
    uint64_t rows = 0;  // free ones in all groups
    uint64_t first = UINT64_MAX, first_rows = 0;  // room for the emptiest, and its own
    for (const GroupNumbers& numbers : store_.allocator.group_numbers(kGroupData)) {
        rows += numbers.open() ? numbers.free_row_blocks : 0;
        if (!selects(record, options.profiles, numbers)) {
            staying += numbers.open() ? numbers.free_row_blocks : 0;
            continue;
        }
        moving += numbers.live_blocks;
        const Ref<const ArrayGroup> group = store_.volume.array().group_at(numbers.address);
        const uint64_t slots = group->geometry.columns() * group->geometry.row_count();
        largest = std::max(largest, static_cast<uint64_t>(share * static_cast<double>(slots)));
        if (numbers.live_blocks > 0 && cleaner_.room_for(numbers) < first) {
            first = cleaner_.room_for(numbers);
            first_rows = numbers.open() ? numbers.free_row_blocks : 0;
        }
    }
    const uint64_t slots_now = store_.volume.potential_in_balance(record, options.profiles, false);
    const uint64_t now = rows - first_rows + slots_now;
    const uint64_t after = staying + store_.volume.potential_in_balance(record, options.profiles, true);
    // By others than the cleaner, which has reserved for a group that is counted here.
    const uint64_t all_reserved = store_.ledger.reserved_data();
    const uint64_t reserved = all_reserved - std::min<uint64_t>(all_reserved, store_.moving_blocks);
    const bool begins = first == UINT64_MAX || now >= first + reserved;
    if (moving > 0 && (!begins || after < moving + largest + reserved))
        return refuse(why, Err::kNoSpace,
                      "there is no room for it: " +
                          size_text((begins ? moving + largest + reserved : first + reserved) * kBlockBytes) +
                          " would be needed, and there are " +
                          size_text((begins ? after : now) * kBlockBytes) + "; remove files or add devices");
    const SpaceNumbers data = store_.allocator.numbers(kGroupData);
    const uint64_t offered = data.free_row_blocks + data.partial_row_blocks + data.degraded_row_blocks +
                             data.degraded_partial_row_blocks + slots_now;
    if (!store_.ledger.try_lower_room(offered))
        return refuse(why, Err::kNoSpace,
                      "there is no room for what is being written; try again, or remove files");
    return {};
}

}  // namespace cowraid
