// SPDX-License-Identifier: MIT
// Tells devices which slots, and which free stripes of block groups, hold nothing any more.
//
// The way of a stripe: it is taken out of use; its checksums leave their tree; when that commit is durable it
// is discarded; then it may be used again. So a stripe that was discarded is as one that was never written,
// and a crash on the way leaves one that was not discarded. What is out of use meanwhile is a part of the
// free room, and goes back when somebody needs it. The way of slots: Volume::begin_discard().
#pragma once

#include <atomic>
#include <deque>
#include <optional>
#include <vector>

#include "alloc/allocator.h"
#include "base/mutex.h"
#include "fs/txn/transaction.h"
#include "raid56/array.h"

namespace cowraid {

struct Store;

// What FITRIM asks for. Positions are volume addresses; of groups the stripes are meant that lie in the range
// as a whole. Slots of no block group count as behind all groups: a range that reaches there has all slots.
struct TrimRange {
    uint64_t first = 0;
    uint64_t end = UINT64_MAX;
    uint64_t bytes_min = 0;  // shorter runs of free stripes, and of free slots of a member, are left out
};

// Answers a trim, from any thread.
class TrimCompletion {
public:
    virtual ~TrimCompletion() = default;
    // Called exactly once; the object may delete itself. `bytes` of members that were discarded.
    virtual void done(Status status, uint64_t bytes) = 0;
    // False: nobody waits for it any more, and the trim ends. Asked between batches.
    [[nodiscard]] virtual bool wanted() const { return true; }
};

class Discards {
public:
    explicit Discards(Store& store) : store_(store) { }

    // For the commit thread, between two commits.

    // Takes the next free stripes out of use, and hands those on whose commit is durable.
    void choose();
    // Room is short: what is out of use goes back, once the discard under way has ended.
    void give_back();

    // For any thread.

    // Discards all that is free, whatever the options of the mount say. kShutdown: the filesystem stops, or
    // is not written to. kInvalid: the range begins where neither groups nor slots can be.
    void trim(const TrimRange& range, TrimCompletion* completion);
    // Answers all that were asked for: kShutdown. What they began goes on.
    void end_trims();
    // Bytes of members, since the mount.
    [[nodiscard]] uint64_t discarded_bytes() const { return discarded_bytes_.load(); }

    // For the thread that discards.

    // Sleeps until there is something to do; false: stop() was called.
    [[nodiscard]] bool wait();
    // Discards one part, if there is one.
    bool step();
    void stop();
    // Before the threads start, and after they have ended.
    void allow();
    void finish();

private:
    struct HeldStripes {
        VolumeAddress group;
        StripeRun stripes;
    };
    // Where a walk over all groups goes on.
    struct Walk {
        uint64_t group = 0;  // address, or lower
        Allocator::HoldWalk stripes;  // in that group
    };
    struct Trim {
        TrimRange range;
        TrimCompletion* completion;
        uint64_t number = 0;
        uint64_t bytes_before = 0;
        bool begun = false;
        bool walked = false;  // to the end
        Walk walk;
    };
    // What one walk has taken out of use for one commit.
    struct Batch;

    [[nodiscard]] uint64_t end_of_positions() const;
    [[nodiscard]] bool hand_on();
    void go_on_with_trim();
    [[nodiscard]] bool gather(Walk& walk, Allocator::Hold which, const TrimRange& range);
    [[nodiscard]] bool hold_in(const ArrayGroup& group, Allocator::Hold which, const TrimRange& range,
                               Allocator::HoldWalk& walk, Batch& batch);
    [[nodiscard]] bool keep(const ArrayGroup& group, const std::vector<StripeRun>& runs, Batch& batch);
    [[nodiscard]] bool recorded_again(const HeldStripes& held) const;
    void let_go(std::vector<HeldStripes>& held);
    [[nodiscard]] bool takes_discards(const BlockDevice& device) const;
    [[nodiscard]] bool any_takes_discards() const;
    void discard(const std::vector<MemberPart>& parts);
    void rest(uint64_t part_ms);

    Store& store_;
    // Commit thread: waiting for the commit of that transaction.
    std::vector<HeldStripes> erased_;
    TransactionId erased_with_;
    Walk freed_walk_;
    uint64_t next_walk_ms_ = 0;
    size_t windows_max_ = kWindowsMost;  // of the next batch
    static constexpr size_t kWindowsMost = 8192;

    std::atomic<uint64_t> discarded_bytes_{0};
    std::atomic<bool> trimming_{false};  // trims_ has some; changed under the mutex
    Mutex mutex_{LockRank::kLeaf};
    CondVar changed_;
    std::deque<HeldStripes> ready_ CW_GUARDED_BY(mutex_);
    bool busy_ CW_GUARDED_BY(mutex_) = false;  // with one of them
    bool poked_ CW_GUARDED_BY(mutex_) = false;  // there may be something to do
    bool stopping_ CW_GUARDED_BY(mutex_) = false;
    uint64_t last_trim_ CW_GUARDED_BY(mutex_) = 0;
    std::deque<Trim> trims_ CW_GUARDED_BY(mutex_);  // the first one is under way
};

}  // namespace cowraid
