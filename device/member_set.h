// SPDX-License-Identifier: MIT
// The members of one volume: which are present, and what went wrong on each.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "base/units.h"
#include "device/block_device.h"
#include "format/superblock.h"

namespace cowraid {

// Error kinds counted per member (order and meaning are on disk: format/superblock.h kCounterCount).
enum class MemberCounter : uint8_t {
    kWriteErrors,
    kReadErrors,
    kFlushErrors,
    kCorruption,  // a data or metadata block failed its checksum
    kGeneration,  // a valid block of another address or generation (lost or misdirected write)
    kParity,  // a parity block failed its checksum
    kSuperblock,  // a superblock or block-group map copy was bad
    kRepaired,  // blocks rewritten with reconstructed content
};
static_assert(static_cast<size_t>(MemberCounter::kRepaired) + 1 == kMemberCounterCount);

const char* member_counter_name(MemberCounter counter);

using MemberCounters = std::array<uint64_t, kMemberCounterCount>;

// Asked before members leave service: implemented by who knows what lies on them. Thread-safe.
class FailurePolicy {
public:
    virtual ~FailurePolicy() = default;
    // Whether all that can be had now can be had without `leaving` too: distinct members in service. A lock
    // of rank kMemberSet is held.
    [[nodiscard]] virtual bool can_do_without(std::span<const MemberId> leaving) const = 0;
    // Whether nothing is missing: no member is out of service or lacks anything. Locks as above.
    [[nodiscard]] virtual bool whole() const { return true; }
};

class MemberSet {
public:
    MemberSet();
    ~MemberSet();
    MemberSet(const MemberSet&) = delete;
    MemberSet& operator=(const MemberSet&) = delete;

    // `device` may be null: the member is known but absent. Ids must be distinct and not 0.
    void add(MemberId id, std::unique_ptr<BlockDevice> device, const MemberCounters& counters);

    // The device, or null when the member is absent, failed or unknown. The pointer stays valid as long as
    // the set (a failed member's device is kept until then). Lock-free; thread-safe.
    [[nodiscard]] BlockDevice* device(MemberId id) const;
    // Any member in service is (BlockDevice::rotational()). Thread-safe.
    [[nodiscard]] bool rotational() const;
    // No member any more: out of service and unknown. The device is kept as that of one that failed.
    void remove(MemberId id);
    // A member that is about to be removed: nothing new should come to depend on it.
    void set_leaving(MemberId id, bool leaving);
    [[nodiscard]] bool leaving(MemberId id) const;
    // How many of which members must stay in service, in place until it is replaced; at first nobody must.
    struct Quorum {
        std::vector<MemberId> members;
        size_t count;
        // Unless 0: `successor` has all that `replaced` has, and counts for it when that is out of service,
        // as long as all that are out are fewer than `count`: then they cannot go on by themselves.
        MemberId replaced{}, successor{};

        // Whether it may be done without those that do not `stay`.
        template <typename Stays> [[nodiscard]] bool holds(Stays stay) const
        {
            const auto there = static_cast<size_t>(std::count_if(members.begin(), members.end(), stay));
            const bool stands_in =
                successor.value != 0 && !stay(replaced) && stay(successor) && members.size() - there < count;
            return there + (stands_in ? 1 : 0) >= count;
        }
    };
    void set_quorums(std::vector<Quorum> quorums);
    // The same, unless fewer are in service now: false, and nothing changes.
    [[nodiscard]] bool require(std::vector<Quorum> quorums);
    // No successor counts for anybody, until they are replaced.
    void forget_successor();
    // All devices, for another set: this one may only be destroyed, before them.
    [[nodiscard]] std::vector<std::unique_ptr<BlockDevice>> give_devices();
    // Who else must agree (null: nobody), until it is replaced.
    void set_failure_policy(const FailurePolicy* policy);

    // The one rule for members that failed, whatever failed on them. `ids`: all that failed in one step, in
    // any order, none perhaps, or out of service already. True: the volume can do without them, beside those
    // that were out before; they are out of service, and the next superblock must record it before anything
    // that skipped them is acknowledged. False: it cannot, or stopped() before. No member leaves service, so
    // that no superblock says so, and what the step wrote must not be acknowledged. Thread-safe.
    [[nodiscard]] bool fail(std::span<const MemberId> ids);
    // fail() was false once. Something that was written is in doubt, and a later flush that succeeds proves
    // nothing about it: nothing is acknowledged any more, and no superblock is written, as long as this set
    // is in use.
    [[nodiscard]] bool stopped() const { return stop_cause() != StopCause::kNone; }
    enum class StopCause : uint8_t { kNone, kTooFewLeft, kTooManyFailed };
    [[nodiscard]] StopCause stop_cause() const { return stop_cause_.load(std::memory_order_acquire); }
    // As static text, of stopped().
    [[nodiscard]] const char* stop_reason() const { return reason_of(stop_cause()); }
    // Failed in the step that stopped everything, and still is in service.
    [[nodiscard]] bool stopped_it(MemberId id) const;
    // Whether superblocks are written, so that who writes them logs who left service. Else it is logged here.
    void set_recorded(bool recorded) { recorded_.store(recorded, std::memory_order_relaxed); }
    // The same rule where nothing rests on the failed requests (reads, repairs): false changes nothing.
    bool fail_if_spared(std::span<const MemberId> ids);
    // How many seconds within ErrorBudget::kWindowSeconds may have errors; five for one in which a repair did
    // not hold; 0: any.
    void set_error_budget(uint32_t seconds) { error_budget_.store(seconds, std::memory_order_relaxed); }
    [[nodiscard]] uint32_t error_budget() const { return error_budget_.load(std::memory_order_relaxed); }
    // How long readers wait for members before they do without them, if they can; 0: for ever. And what else
    // is too long: requests above it spend the error budget, n times above it like n errors,
    // at most five; 0: nothing is.
    void set_read_deadline_ms(uint64_t ms) { read_deadline_ms_.store(ms, std::memory_order_relaxed); }
    [[nodiscard]] uint64_t read_deadline_ms() const
    {
        return read_deadline_ms_.load(std::memory_order_relaxed);
    }
    void set_slow_io_ms(uint64_t ms);
    [[nodiscard]] uint64_t slow_io_ms() const { return slow_io_ms_.load(std::memory_order_relaxed); }
    // The device, of a member of this set, is slow: requests are under way, and none was done for as long as
    // readers wait. No locks of rank kLateIo and above are held.
    [[nodiscard]] bool slow(BlockDevice& device) const;
    // For how long a member that is slow, and in service, let its oldest request wait, milliseconds; else 0.
    [[nodiscard]] uint64_t slow_ms(MemberId id) const;
    // Returns when the member is not slow, however long that takes: for work in the background, before it
    // locks stripes that readers may need. False: stop_waiting() was called before. No lock is held.
    [[nodiscard]] bool await(MemberId id) const;
    // Who awaits a member is to stop, from now on or (false) not any more.
    void stop_waiting(bool stop) { stops_waiting_.store(stop, std::memory_order_release); }
    // Requests that took longer than set_slow_io_ms() says, on its device, since that is in use here.
    [[nodiscard]] uint64_t slow_ios(MemberId id) const;
    // A block of the member was rewritten with what belongs there, and read again: it `holds` that, or not.
    enum class Repair : uint8_t { kHolds, kDoesNotHold };
    void note_repair(MemberId id, DeviceOffset offset, Repair repair);
    // A member whose repairs that did not hold alone are more than that leaves service, where nothing is
    // missing but what its leaving costs. Of one with other errors, which are mended, what it holds is of
    // use: it stays, and is logged. While a member is being copied nobody leaves, and that one is not logged.
    // True: one left, and a commit is to record it. No locks of rank kMemberSet and above are held.
    bool fail_over_budget(MemberId copied = {});
    // Requests that took too long since the last call, of one member, spend its budget. Where several are
    // late at a time it is not a member's fault: the load's, or that of what they hang on. Same locks.
    void spend_slow_ios() const;
    // The same of one that came back to be copied, and was not. False: it stays, nobody can do without it.
    bool fail_for_repairs(MemberId id);
    // Of a member in service: more errors than the budget has.
    [[nodiscard]] bool doubtful(MemberId id) const;
    // The failure_reason() of such a member.
    static constexpr const char kRepairsDoNotHold[] = "repairs of it do not hold";
    // How long it is out of service, or not there, in this set: milliseconds.
    [[nodiscard]] uint64_t away_ms(MemberId id) const;
    // Why a member left service, for messages: static text, empty when that was for a failed write.
    [[nodiscard]] const char* failure_reason(MemberId id) const;
    // Takes a member out of service without asking anybody: for tests and measurements.
    void leave_out(MemberId id) { leave_out(id, true); }
    // The same by order of a user, if the others can be had without it: it is missing then, not failed.
    bool take_offline(MemberId id);
    // A member that is not in service comes into service, on another device, which is kept beside the old one
    // as long as the set, or (null) on the one that it had: there must be one.
    void put_in_service(MemberId id, std::unique_ptr<BlockDevice> device);
    // What is written to `source` is written to `target`, too (mirror_of()): both are in service. From now
    // on, and until it is called with another target, or with 0. Who writes meanwhile may not yet know.
    void set_mirror(MemberId source, MemberId target);
    // Where a write to `device`, of the member `id`, goes besides: until the device is out of use, also by
    // who still writes to it when the other one has taken its place.
    struct Mirror {
        MemberId id;  // whose device it is now: it failed, if the write fails
        BlockDevice* device = nullptr;  // null: nowhere
    };
    [[nodiscard]] Mirror mirror_of(MemberId id, const BlockDevice* device) const;
    // The device of `target` becomes that of `source`, in service, and `target` is no member any more. The
    // one that `source` had, or null, is kept as long as the set. False: `target` is not in service, or
    // stopped().
    [[nodiscard]] bool take_over(MemberId source, MemberId target);
    // A member that is out of service has the device again that it had before put_in_service() gave it
    // another one; null: none.
    void put_back(MemberId id, const BlockDevice* device);
    // How often it came into service. What was found out about its content before says nothing about it now.
    [[nodiscard]] uint64_t arrivals(MemberId id) const;
    // The device of a member that is out of service; null: it has none. Only who brings members into service
    // may ask.
    [[nodiscard]] BlockDevice* idle_device(MemberId id);
    [[nodiscard]] bool failed(MemberId id) const;
    [[nodiscard]] std::vector<MemberId> ids() const;
    // Of the device, also of one that failed; empty when there is none.
    [[nodiscard]] std::string path(MemberId id) const;
    // For messages, also of a member that failed: "member 3 (/dev/sdc)".
    [[nodiscard]] std::string name(MemberId id) const;

    // Counts, and logs the sums.
    void count(MemberId id, MemberCounter counter, uint64_t amount = 1);
    [[nodiscard]] MemberCounters counters(MemberId id) const;
    void reset_counters(MemberId id);

private:
    struct Member;
    void leave_out(MemberId id, bool failed);
    using Table = std::vector<Member*>;  // by rising id
    [[nodiscard]] const Table& table() const { return *table_.load(std::memory_order_acquire); }
    void publish(Table table) CW_REQUIRES(mutex_);
    void serve(Member& member, std::unique_ptr<BlockDevice> device) CW_REQUIRES(mutex_);
    [[nodiscard]] Member* find(MemberId id) const;
    [[nodiscard]] std::vector<MemberId> in_service(std::span<const MemberId> ids) const;
    [[nodiscard]] bool spared(std::span<const MemberId> leaving) const CW_REQUIRES(mutex_);
    // Whether they hold without `leaving`.
    [[nodiscard]] bool hold(const std::vector<Quorum>& quorums, std::span<const MemberId> leaving) const;
    bool take_out(std::span<const MemberId> leaving, bool failed = true) CW_REQUIRES(mutex_);
    static const char* reason_of(StopCause cause);
    void stop(std::span<const MemberId> culprits) CW_REQUIRES(mutex_);

    // Never changed, and kept for who still reads it.
    struct MirrorOf {
        const BlockDevice* source;
        MemberId target;
        BlockDevice* device;
    };

    std::vector<std::unique_ptr<BlockDevice>> replaced_ CW_GUARDED_BY(mutex_);
    std::vector<std::unique_ptr<const MirrorOf>> mirrors_ CW_GUARDED_BY(mutex_);
    std::vector<std::unique_ptr<Member>> members_ CW_GUARDED_BY(mutex_);  // those that were removed, too
    // Never changed: who adds or removes a member publishes another one. All stay, for who still reads them.
    std::vector<std::unique_ptr<const Table>> tables_ CW_GUARDED_BY(mutex_);
    std::atomic<const Table*> table_;
    std::vector<Quorum> quorums_ CW_GUARDED_BY(mutex_);
    std::atomic<uint32_t> error_budget_{0};
    std::atomic<uint64_t> read_deadline_ms_{0}, slow_io_ms_{0};
    std::atomic<bool> recorded_{false};
    std::atomic<StopCause> stop_cause_{StopCause::kNone};
    std::atomic<bool> stops_waiting_{false};
    // Makes "can the volume do without them?" and taking them out a single step.
    Mutex mutex_{LockRank::kMemberSet};
    const FailurePolicy* failure_policy_ CW_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace cowraid
