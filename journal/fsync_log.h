// SPDX-License-Identifier: MIT
// The fsync log: makes records durable that bring back, at the next mount, what fsync acknowledged since the
// last commit. It knows nothing of what they say. docs/FORMAT.md, section 11, has the rules.
#pragma once

#include <deque>
#include <span>

#include "base/mutex.h"
#include "journal/fsync_ring.h"

namespace cowraid {

class FsyncLog {
public:
    // Arguments as for FsyncRing; all must outlive the log.
    FsyncLog(MemberSet& members, const Superblock& superblock, uint32_t tolerance, uint64_t first_sequence,
             Generation committed)
        : members_(members), ring_(members, superblock, tolerance, first_sequence, committed)
    {
    }

    // Returns when the record, 0 bytes to kMaxFsyncRecordBytes, and all that was appended before it are
    // durable on tolerance + 1 members, or on all that are left. What was appended by a call that returned
    // before this one began comes earlier in the log. `generation` is the commit that the record belongs to:
    // the one under way or the next. `epoch` is Superblock::log_epoch.
    // kTooBig: a record too long. kNoSpace: no room; kStale: a younger generation has records already; kIo:
    // no member left; kShutdown. Each means that the caller has to wait for the commit instead; the record
    // may come back after a crash all the same, as the last of what comes back. After kNoSpace nothing is
    // logged until that generation is committed: what is of the next one waits for it in here. So a caller
    // must hold nothing that a commit needs. Thread-safe; waits for devices.
    Status append(std::span<const std::byte> record, Generation generation, uint64_t epoch);

    // The commit of `committed` is durable: records of it and of earlier ones are dead, their room is free.
    // To be called for every commit, before the generation after the next is opened.
    void retire(Generation committed);
    // Blocks of the member's log, all of them without a live record: no append() takes them until release(),
    // and they can be overwritten. False: there are such records, or no such log.
    bool hold(MemberId member, DeviceOffset first, uint64_t bytes);
    void release(MemberId member, DeviceOffset first);
    // There will be no commit any more: whoever waits for one, and all later calls, get kShutdown.
    void stop();

    // What is appended from now on may be on that member, too. Thread-safe, as the next.
    void add_member(const MemberRecord& record);
    // What is appended from now on survives that many members.
    void set_tolerance(uint32_t tolerance);

    [[nodiscard]] LogUsage usage() const;
    // Batches written and records in them since the start, for the statistics.
    struct Counts {
        uint64_t batches = 0, records = 0;
    };
    [[nodiscard]] Counts counts() const;

private:
    // A call of append(), on its stack.
    struct Waiter {
        std::span<const std::byte> record;
        Generation generation;
        uint64_t epoch;
        bool done = false;
        Status status;
    };
    bool lead() CW_REQUIRES(mutex_);
    std::vector<Waiter*> take_batch(uint32_t& content_bytes) CW_REQUIRES(mutex_);
    Status write_copies(RecordWrite& write, std::span<Waiter* const> batch) CW_REQUIRES(mutex_);

    MemberSet& members_;
    mutable Mutex mutex_{LockRank::kFsyncLog};
    CondVar changed_;  // the queue, a write that settled, an answer
    FsyncRing ring_ CW_GUARDED_BY(mutex_);
    std::deque<Waiter*> queue_ CW_GUARDED_BY(mutex_);  // in no batch yet, in order
    bool stopped_ CW_GUARDED_BY(mutex_) = false;
    Counts counts_ CW_GUARDED_BY(mutex_);
};

}  // namespace cowraid
