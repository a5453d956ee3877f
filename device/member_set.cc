// SPDX-License-Identifier: MIT
#include "device/member_set.h"

#include <unistd.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/log_count.h"
#include "base/text.h"
#include "device/error_budget.h"
#include "device/late_io.h"

namespace cowraid {

struct MemberSet::Member {
    static bool precedes(const Member* one, MemberId id) { return one->id < id; }

    MemberId id;
    std::unique_ptr<BlockDevice> device;  // kept after a failure: others may still be inside perform()
    std::atomic<const BlockDevice*> named{nullptr};  // the same, for who only wants its name
    std::atomic<BlockDevice*> in_service{nullptr};
    std::atomic<bool> failed{false};
    std::atomic<bool> culprit{false};
    std::atomic<bool> leaving{false};
    std::atomic<uint64_t> arrivals{0};
    std::atomic<const MirrorOf*> mirror{nullptr};
    std::atomic<const char*> failure_reason{""};
    std::atomic<uint64_t> out_ms{monotonic_ms()};  // since when it is out of service, if it is
    std::array<std::atomic<uint64_t>, kMemberCounterCount> counters{};
    std::atomic<uint64_t> slow_told{0};  // slow requests that are logged

    mutable Mutex errors_mutex{LockRank::kLeaf};
    ErrorBudget errors CW_GUARDED_BY(errors_mutex);
    ErrorBudget bad_repairs CW_GUARDED_BY(errors_mutex);  // of those
    std::deque<uint64_t> repaired CW_GUARDED_BY(errors_mutex);  // device offsets, the last at the end
    bool told CW_GUARDED_BY(errors_mutex) = false;  // over its budget, which is logged
};

const char* member_counter_name(MemberCounter counter)
{
    switch (counter) {
    case MemberCounter::kWriteErrors:
        return "write_errors";
    case MemberCounter::kReadErrors:
        return "read_errors";
    case MemberCounter::kFlushErrors:
        return "flush_errors";
    case MemberCounter::kCorruption:
        return "corruption_errors";
    case MemberCounter::kGeneration:
        return "generation_errors";
    case MemberCounter::kParity:
        return "parity_errors";
    case MemberCounter::kSuperblock:
        return "superblock_errors";
    case MemberCounter::kRepaired:
        return "repaired_blocks";
    }
    return "unknown";
}

namespace {

constexpr uint32_t kErrorWeight = 1;
constexpr uint32_t kSlowWeightMax = 5;  // of one time without an answer
constexpr uint32_t kBadRepairWeight = 5;
// Repaired blocks of a member that are remembered, to see whether they go bad again.
constexpr size_t kRepairedMax = 256;

uint64_t now_seconds()
{
    return monotonic_ms() / 1000;
}

bool has_budget(MemberCounter counter)
{
    return counter == MemberCounter::kReadErrors || counter == MemberCounter::kCorruption ||
           counter == MemberCounter::kGeneration || counter == MemberCounter::kParity;
}

// As a line of the log calls them.
const char* counted_events(MemberCounter counter)
{
    switch (counter) {
    case MemberCounter::kWriteErrors:
        return "writes that failed";
    case MemberCounter::kReadErrors:
        return "reads that failed";
    case MemberCounter::kFlushErrors:
        return "flushes that failed";
    case MemberCounter::kCorruption:
        return "blocks with a wrong checksum";
    case MemberCounter::kGeneration:
        return "blocks of another address or time";
    case MemberCounter::kParity:
        return "parity blocks with a wrong checksum";
    case MemberCounter::kSuperblock:
        return "bad copies of the superblock or group map";
    case MemberCounter::kRepaired:
        return "blocks repaired";
    }
    return "unknown errors";
}

}  // namespace

MemberSet::MemberSet()
{
    MutexLock lock(mutex_);
    publish({});
}

MemberSet::~MemberSet() = default;

void MemberSet::publish(Table table)
{
    tables_.push_back(std::make_unique<const Table>(std::move(table)));
    table_.store(tables_.back().get(), std::memory_order_release);
}

void MemberSet::add(MemberId id, std::unique_ptr<BlockDevice> device, const MemberCounters& counters)
{
    CW_ASSERT(id.value != 0 && find(id) == nullptr);
    auto member = std::make_unique<Member>();
    member->id = id;
    if (device != nullptr)
        device->in_flight().set_limit_ms(slow_io_ms());
    member->in_service.store(device.get(), std::memory_order_release);
    member->named.store(device.get(), std::memory_order_release);
    member->device = std::move(device);
    for (size_t index = 0; index < counters.size(); ++index)
        member->counters[index].store(counters[index], std::memory_order_relaxed);
    MutexLock lock(mutex_);
    Table with = table();
    with.insert(std::lower_bound(with.begin(), with.end(), id, Member::precedes), member.get());
    members_.push_back(std::move(member));
    publish(std::move(with));
}

void MemberSet::remove(MemberId id)
{
    leave_out(id);
    MutexLock lock(mutex_);
    Table without = table();
    std::erase_if(without, [=](const Member* member) { return member->id == id; });
    publish(std::move(without));
}

std::vector<std::unique_ptr<BlockDevice>> MemberSet::give_devices()
{
    MutexLock lock(mutex_);
    std::vector<std::unique_ptr<BlockDevice>> devices;
    for (const std::unique_ptr<Member>& member : members_)
        if (member->device != nullptr)
            devices.push_back(std::move(member->device));
    return devices;
}

void MemberSet::set_leaving(MemberId id, bool leaving)
{
    if (Member* const member = find(id); member != nullptr)
        member->leaving.store(leaving, std::memory_order_relaxed);
}

bool MemberSet::leaving(MemberId id) const
{
    const Member* const member = find(id);
    return member != nullptr && member->leaving.load(std::memory_order_relaxed);
}

MemberSet::Member* MemberSet::find(MemberId id) const
{
    const Table& members = table();
    const auto place = std::lower_bound(members.begin(), members.end(), id, Member::precedes);
    return place != members.end() && (*place)->id == id ? *place : nullptr;
}

BlockDevice* MemberSet::device(MemberId id) const
{
    const Member* member = find(id);
    return member == nullptr ? nullptr : member->in_service.load(std::memory_order_acquire);
}

bool MemberSet::hold(const std::vector<Quorum>& quorums, std::span<const MemberId> leaving) const
{
    return std::all_of(quorums.begin(), quorums.end(), [&](const Quorum& quorum) {
        const auto stay = [&](MemberId id) {
            return device(id) != nullptr && std::find(leaving.begin(), leaving.end(), id) == leaving.end();
        };
        return quorum.holds(stay);
    });
}

void MemberSet::set_quorums(std::vector<Quorum> quorums)
{
    MutexLock lock(mutex_);
    quorums_ = std::move(quorums);
}

bool MemberSet::require(std::vector<Quorum> quorums)
{
    MutexLock lock(mutex_);
    const bool holds = hold(quorums, {});
    if (holds)
        quorums_ = std::move(quorums);
    return holds;
}

void MemberSet::forget_successor()
{
    MutexLock lock(mutex_);
    for (Quorum& quorum : quorums_)
        quorum.replaced = quorum.successor = {};
}

void MemberSet::set_failure_policy(const FailurePolicy* policy)
{
    MutexLock lock(mutex_);
    failure_policy_ = policy;
}

bool MemberSet::rotational() const
{
    const std::vector<MemberId> all = ids();
    return std::any_of(all.begin(), all.end(), [this](MemberId id) {
        const BlockDevice* const device = this->device(id);
        return device != nullptr && device->rotational();
    });
}

// Those of `ids`, each once.
std::vector<MemberId> MemberSet::in_service(std::span<const MemberId> ids) const
{
    std::vector<MemberId> found;
    for (const MemberId id : ids)
        if (device(id) != nullptr && std::find(found.begin(), found.end(), id) == found.end())
            found.push_back(id);
    return found;
}

// What there is can be had without them.
bool MemberSet::spared(std::span<const MemberId> leaving) const
{
    return failure_policy_ == nullptr || failure_policy_->can_do_without(leaving);
}

bool MemberSet::take_out(std::span<const MemberId> leaving, bool failed)
{
    if (!hold(quorums_, leaving) || !spared(leaving))
        return false;
    const bool logs = !recorded_.load(std::memory_order_relaxed);
    for (const MemberId id : leaving) {
        if (logs)
            CW_LOG_ERROR("%s failed: out of service", name(id).c_str());
        leave_out(id, failed);
    }
    return true;
}

const char* MemberSet::reason_of(StopCause cause)
{
    return cause == StopCause::kTooFewLeft ? "too few members are left for safe writing"
                                           : "more members failed than the volume can do without";
}

void MemberSet::stop(std::span<const MemberId> culprits)
{
    const StopCause cause = spared(culprits) ? StopCause::kTooFewLeft : StopCause::kTooManyFailed;
    for (const MemberId id : ids()) {
        if (failed(id))
            CW_LOG_ERROR("%s is out of service after errors", name(id).c_str());
    }
    for (const MemberId id : culprits) {
        find(id)->culprit.store(true, std::memory_order_release);
        CW_LOG_ERROR("%s failed, and the volume cannot be written without it: %s", name(id).c_str(),
                     reason_of(cause));
    }
    stop_cause_.store(cause, std::memory_order_release);
}

bool MemberSet::fail(std::span<const MemberId> ids)
{
    MutexLock lock(mutex_);
    if (stopped())
        return false;
    const std::vector<MemberId> leaving = in_service(ids);
    if (leaving.empty() || take_out(leaving))
        return true;
    stop(leaving);
    return false;
}

bool MemberSet::fail_if_spared(std::span<const MemberId> ids)
{
    MutexLock lock(mutex_);
    return !stopped() && take_out(in_service(ids));
}

void MemberSet::note_repair(MemberId id, DeviceOffset offset, Repair repair)
{
    Member* const member = find(id);
    if (member == nullptr)
        return;
    MutexLock lock(member->errors_mutex);
    std::deque<uint64_t>& repaired = member->repaired;
    const auto before = std::find(repaired.begin(), repaired.end(), offset.value);
    if (repair == Repair::kDoesNotHold || before != repaired.end())
        for (ErrorBudget* const budget : {&member->errors, &member->bad_repairs})
            budget->spend(now_seconds(), kBadRepairWeight);
    if (before != repaired.end())
        repaired.erase(before);
    repaired.push_back(offset.value);
    if (repaired.size() > kRepairedMax)
        repaired.pop_front();
}

void MemberSet::set_slow_io_ms(uint64_t ms)
{
    MutexLock lock(mutex_);
    slow_io_ms_.store(ms, std::memory_order_relaxed);
    for (const std::unique_ptr<Member>& member : members_)
        if (member->device != nullptr)
            member->device->in_flight().set_limit_ms(ms);
}

bool MemberSet::slow(BlockDevice& device) const
{
    const auto waits = [&, deadline = read_deadline_ms()] {
        return deadline != 0 && device.in_flight().is_silent(deadline);
    };
    if (!waits())
        return false;
    reap_late_io();
    return waits();
}

uint64_t MemberSet::slow_ms(MemberId id) const
{
    BlockDevice* const its = device(id);
    return its != nullptr && slow(*its) ? its->in_flight().oldest_ms() : 0;
}

bool MemberSet::await(MemberId id) const
{
    constexpr useconds_t kLookMicroseconds = 10'000;
    while (slow_ms(id) != 0) {
        if (stops_waiting_.load(std::memory_order_acquire))
            return false;
        usleep(kLookMicroseconds);
    }
    return true;
}

uint64_t MemberSet::slow_ios(MemberId id) const
{
    BlockDevice* const its = device(id);
    return its == nullptr ? 0 : its->in_flight().slow_count();
}

void MemberSet::spend_slow_ios() const
{
    reap_late_io();
    Member* late = nullptr;
    uint32_t worst = 0, late_count = 0;
    for (Member* const member : table()) {
        BlockDevice* const its = device(member->id);
        const InFlight::Slow slow_ios = its == nullptr ? InFlight::Slow() : its->in_flight().take_slow();
        if (slow_ios.worst == 0)
            continue;
        const uint64_t told = member->slow_told.exchange(slow_ios.count);
        log_count(LogLevel::kWarning, name(member->id), "requests that took too long",
                  slow_ios.count - std::min(told, slow_ios.count));
        late = member;
        worst = slow_ios.worst;
        ++late_count;
    }
    if (late_count != 1)
        return;
    MutexLock lock(late->errors_mutex);
    late->errors.spend(now_seconds(), std::min(worst, kSlowWeightMax) * kErrorWeight);
}

bool MemberSet::fail_over_budget(MemberId copied)
{
    const uint32_t budget = error_budget_.load(std::memory_order_relaxed);
    bool any = false;
    for (Member* const member : budget == 0 ? Table() : table()) {
        const MemberId id = member->id;
        if (id == copied)
            continue;
        uint64_t errors, bad_repairs;
        bool told;
        {
            MutexLock lock(member->errors_mutex);
            errors = member->errors.spent(now_seconds());
            bad_repairs = member->bad_repairs.spent(now_seconds());
            told = std::exchange(member->told, errors > budget);
        }
        if (device(id) == nullptr || errors <= budget)
            continue;
        const std::string text = name(id) + ": errors in " + count_text(errors, "second") +
                                 " of the last ten minutes, more than error_budget=" + std::to_string(budget);
        bool left = false;
        if (bad_repairs > budget && copied.value == 0) {
            MutexLock lock(mutex_);
            const bool whole = failure_policy_ == nullptr || failure_policy_->whole();
            left = !stopped() && whole && device(id) != nullptr && take_out({&id, 1});
        }
        if (left)
            member->failure_reason.store(kRepairsDoNotHold, std::memory_order_release);
        if (left || !told)
            CW_LOG_ERROR("%s%s", text.c_str(),
                         left ? ", and repairs of it do not hold" : "; it stays: replace it, or add a spare");
        any = any || left;
    }
    return any;
}

bool MemberSet::fail_for_repairs(MemberId id)
{
    Member* const member = find(id);
    {
        MutexLock lock(mutex_);
        if (stopped() || device(id) == nullptr || !take_out({&id, 1}))
            return false;
    }
    member->failure_reason.store(kRepairsDoNotHold, std::memory_order_release);
    CW_LOG_ERROR("%s is out of service again: it was not replaced", name(id).c_str());
    return true;
}

bool MemberSet::doubtful(MemberId id) const
{
    const Member* const member = find(id);
    const uint32_t budget = error_budget_.load(std::memory_order_relaxed);
    if (member == nullptr || budget == 0 || device(id) == nullptr)
        return false;
    MutexLock lock(member->errors_mutex);
    return member->errors.spent(now_seconds()) > budget;
}

uint64_t MemberSet::away_ms(MemberId id) const
{
    const Member* const member = find(id);
    return member == nullptr || device(id) != nullptr ? 0 : monotonic_ms() - member->out_ms.load();
}

const char* MemberSet::failure_reason(MemberId id) const
{
    const Member* const member = find(id);
    return member == nullptr ? "" : member->failure_reason.load(std::memory_order_acquire);
}

void MemberSet::leave_out(MemberId id, bool failed)
{
    Member* member = find(id);
    if (member == nullptr || member->named.load(std::memory_order_acquire) == nullptr)
        return;
    member->failed.store(failed, std::memory_order_release);
    if (member->in_service.load(std::memory_order_relaxed) != nullptr)
        member->out_ms.store(monotonic_ms());
    member->in_service.store(nullptr, std::memory_order_release);
}

bool MemberSet::take_offline(MemberId id)
{
    MutexLock lock(mutex_);
    return !stopped() && take_out(in_service({&id, 1}), false);
}

void MemberSet::put_in_service(MemberId id, std::unique_ptr<BlockDevice> device)
{
    Member* const member = find(id);
    CW_ASSERT(member != nullptr && this->device(id) == nullptr);
    MutexLock lock(mutex_);
    serve(*member, std::move(device));
}

// Whoever asks gets the old device, if it is in service, or the new one.
void MemberSet::serve(Member& member, std::unique_ptr<BlockDevice> device)
{
    if (device && member.device)
        replaced_.push_back(std::move(member.device));
    if (device)
        member.device = std::move(device);
    CW_ASSERT(member.device != nullptr);
    member.device->in_flight().set_limit_ms(slow_io_ms());
    member.device->in_flight().forgive();
    member.slow_told.store(member.device->in_flight().slow_count());
    member.named.store(member.device.get(), std::memory_order_release);
    member.failed.store(false);
    member.culprit.store(false);
    member.failure_reason.store("");
    {
        MutexLock errors_lock(member.errors_mutex);
        member.errors.reset();
        member.bad_repairs.reset();
        member.repaired.clear();
        member.told = false;
    }
    member.arrivals.fetch_add(1);
    member.in_service.store(member.device.get(), std::memory_order_release);
}

void MemberSet::set_mirror(MemberId source, MemberId target)
{
    BlockDevice* const from = device(source);
    BlockDevice* const to = device(target);
    MutexLock lock(mutex_);
    if (from != nullptr && to != nullptr)
        mirrors_.push_back(std::make_unique<const MirrorOf>(MirrorOf{from, target, to}));
    if (Member* const member = find(source); member != nullptr)
        member->mirror.store(from != nullptr && to != nullptr ? mirrors_.back().get() : nullptr,
                             std::memory_order_release);
}

MemberSet::Mirror MemberSet::mirror_of(MemberId id, const BlockDevice* device) const
{
    const Member* const member = find(id);
    const MirrorOf* const mirror =
        member == nullptr ? nullptr : member->mirror.load(std::memory_order_acquire);
    if (mirror == nullptr || mirror->source != device)
        return {};
    for (const MemberId owner : {mirror->target, id})
        if (this->device(owner) == mirror->device)
            return {owner, mirror->device};
    return {};
}

bool MemberSet::take_over(MemberId source, MemberId target)
{
    {
        MutexLock lock(mutex_);
        Member* const successor = find(target);
        if (stopped() || device(target) == nullptr)
            return false;
        serve(*find(source), std::move(successor->device));
        successor->named.store(nullptr, std::memory_order_release);
        successor->in_service.store(nullptr, std::memory_order_release);
    }
    remove(target);
    return true;
}

void MemberSet::put_back(MemberId id, const BlockDevice* device)
{
    Member* const member = find(id);
    MutexLock lock(mutex_);
    if (member == nullptr || this->device(id) != nullptr || member->device.get() == device)
        return;
    const auto kept =
        std::find_if(replaced_.begin(), replaced_.end(),
                     [=](const std::unique_ptr<BlockDevice>& one) { return one.get() == device; });
    CW_ASSERT(device == nullptr || kept != replaced_.end());
    if (device != nullptr)
        std::swap(member->device, *kept);
    else
        replaced_.push_back(std::move(member->device));
    member->named.store(device, std::memory_order_release);
}

uint64_t MemberSet::arrivals(MemberId id) const
{
    const Member* const member = find(id);
    return member == nullptr ? 0 : member->arrivals.load();
}

BlockDevice* MemberSet::idle_device(MemberId id)
{
    const Member* const member = find(id);
    MutexLock lock(mutex_);
    return member == nullptr || device(id) != nullptr ? nullptr : member->device.get();
}

bool MemberSet::failed(MemberId id) const
{
    const Member* member = find(id);
    return member != nullptr && member->failed.load(std::memory_order_acquire);
}

std::vector<MemberId> MemberSet::ids() const
{
    std::vector<MemberId> all;
    const Table& members = table();
    all.reserve(members.size());
    for (const Member* member : members)
        all.push_back(member->id);
    return all;
}

bool MemberSet::stopped_it(MemberId id) const
{
    const Member* member = find(id);
    return member != nullptr && member->culprit.load(std::memory_order_acquire);
}

std::string MemberSet::path(MemberId id) const
{
    const Member* member = find(id);
    const BlockDevice* const device =
        member == nullptr ? nullptr : member->named.load(std::memory_order_acquire);
    return device == nullptr ? "" : device->name();
}

std::string MemberSet::name(MemberId id) const
{
    const std::string text = "member " + std::to_string(id.value);
    const std::string device = path(id);
    return device.empty() ? text : text + " (" + device + ")";
}

void MemberSet::count(MemberId id, MemberCounter counter, uint64_t amount)
{
    Member* const member = find(id);
    if (member == nullptr)
        return;
    member->counters[static_cast<size_t>(counter)].fetch_add(amount, std::memory_order_relaxed);
    if (has_budget(counter)) {
        MutexLock lock(member->errors_mutex);
        member->errors.spend(now_seconds(), kErrorWeight);
    }
    if (log_wants(LogLevel::kWarning))
        log_count(LogLevel::kWarning, name(id), counted_events(counter), amount);
}

MemberCounters MemberSet::counters(MemberId id) const
{
    MemberCounters now{};
    if (const Member* member = find(id); member != nullptr) {
        for (size_t index = 0; index < now.size(); ++index)
            now[index] = member->counters[index].load(std::memory_order_relaxed);
    }
    return now;
}

void MemberSet::reset_counters(MemberId id)
{
    if (Member* member = find(id); member != nullptr) {
        for (auto& counter : member->counters)
            counter.store(0, std::memory_order_relaxed);
        if (BlockDevice* const its = device(id); its != nullptr)
            its->in_flight().reset_slow_count();
        member->slow_told.store(0);
    }
}

}  // namespace cowraid
