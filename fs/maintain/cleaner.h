// SPDX-License-Identifier: MIT
// Empties data block groups so that their slots, and with them whole stripes, are free again. Files go on
// naming the addresses their blocks had (fs/txn/remap.h).
//
// The way of a group, each step after the commit of the one before is durable:
//   1. it is marked in the map, takes no new blocks, and addresses in it are looked up from now on;
//   2. its live blocks move into free rows of other groups, a bounded number at a time, each read verified
//      and switched while no operation runs; what was freed meanwhile stays freed;
//   3. when nothing of it is used and no reader of an older commit is left, it leaves as every empty group
//      does (fs/maintain/empty_groups.h).
// The map may be durable before the trees of the same transaction are: that is why 1 comes before 2. A crash
// loses at most what was not committed; the next mount goes on with marked groups.
#pragma once

#include <atomic>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "alloc/clean_policy.h"
#include "fs/maintain/move_batch.h"
#include "fs/txn/ledger.h"
#include "fs/txn/store.h"
#include "fs/txn/transaction.h"

namespace cowraid {

// What the cleaner chooses by: how scarce free stripes are, whatever gives any back, what the balance
// under way says; kMarked: none, groups that are marked go on.
enum class CleanWhen : uint8_t { kPolicy, kAny, kBalance, kMarked };
enum class CleanProgress : uint8_t {
    kNothing,  // nothing to do, or no room to do it
    kWorked,  // there may be more
    kNeedsCommit,  // goes on after a commit, when no reader needs the one before
};

struct CleanerCounts {
    std::atomic<uint64_t> moved_blocks{0};
    std::atomic<uint64_t> unmovable_blocks{0};  // that could not be read, or have no logical address
};

class EmptyGroups;

// All of it by the commit thread, between commits; counts by anybody.
class Cleaner {
public:
    Cleaner(Store& store, const EmptyGroups& empty_groups, const CleanPolicy& policy)
        : store_(store), empty_groups_(empty_groups), policy_(policy)
    {
    }

    struct Step {
        CleanWhen when = CleanWhen::kPolicy;
        bool idle = false;  // nobody has changed anything for a while
        uint64_t bytes = CleanPolicy::kStepBytes;  // to be moved, about; less where there is little room
    };
    // One bounded step. No locks held, no commit under way.
    CleanProgress step(const Step& step);
    // Reserves room for what is in marked groups, as far as there is room, before writers take it.
    void reserve_for_marked();
    // Gives back what is reserved for groups that need it no more.
    void drop_finished();
    [[nodiscard]] CleanPressure pressure(bool idle) const;
    // Free rows that moving the blocks of the group may take.
    [[nodiscard]] uint64_t room_for(const GroupNumbers& group) const;
    // Its blocks, or some of them, cannot be moved: it stays until a balance begins or goes on.
    [[nodiscard]] bool is_set_aside(VolumeAddress group) const { return set_aside_.count(group) != 0; }
    // What stood in the way may be gone.
    void forget_set_aside()
    {
        set_aside_.clear();
        failed_ = false;
    }
    // No group is emptied any more, until it is tried again, or a balance begins or goes on.
    [[nodiscard]] bool failed() const { return failed_; }
    // What could not be read may be readable by now. kNotFound: it has not failed.
    Status try_again() { return std::exchange(failed_, false) ? Status() : Status(Err::kNotFound); }
    // Of groups that are being emptied, or have been, and will leave the map.
    [[nodiscard]] uint64_t emptying_blocks() const;
    [[nodiscard]] const CleanPolicy& policy() const { return policy_; }
    [[nodiscard]] const CleanerCounts& counts() const { return counts_; }

private:
    // A marked group, with room reserved for what is in it.
    struct Source {
        VolumeAddress group;
        uint64_t reserved = 0;  // blocks; store_.moving_blocks is the sum
        VolumeAddress next;  // moving goes on here; not valid: all was tried once
        TransactionId wait_for{};  // its commit comes before the next step
        uint64_t unmovable = 0;  // blocks met since `next` was at the begin that stay
        bool moved_any = false;  // since then
    };
    // Goes on with a group that was marked before. False: there is none. `waits`: there is one, but no room
    // for its blocks.
    bool resume(bool& waits);
    // Chooses one and marks it.
    bool begin(const Step& step);
    // Both, as far ahead as the step's kind goes.
    void find_sources(const Step& step);
    [[nodiscard]] std::optional<VolumeAddress> choose(const Step& step) const;
    [[nodiscard]] std::vector<GroupNumbers> candidates(CleanWhen when) const;
    [[nodiscard]] uint64_t stripe_blocks(VolumeAddress group) const;
    // Whether emptied groups have only commits to wait for.
    [[nodiscard]] bool waits_for_commit() const;
    void wait_for_commit(Source& source, Transaction& open);
    void take_reserved(Source& source, uint64_t blocks);
    void set_aside(Source& source);
    void finish(size_t index);

    // cleaner_move.cc
    CleanProgress move(Source& source, const View& view, uint64_t bytes);
    uint64_t make_room(Source& source, const View& view, uint64_t wanted, uint64_t least,
                       ChangeReservation& reservation, CleanProgress& progress);
    Status fetch(Source& source, const View& view, uint64_t block_count);
    Status carry_out(Source& source, const View& view, MoveBatch& batch);
    Status write_blocks(Source& source, const View& view, MoveBatch& batch);
    Status switch_blocks(Transaction& open, std::span<const MovedRun> moves);
    void abandon(VolumeAddress group, Transaction& open, std::span<const MovedRun> moves, Status why);

    Store& store_;
    const EmptyGroups& empty_groups_;
    const CleanPolicy policy_;
    CleanerCounts counts_;
    std::vector<Source> sources_;  // the first is being moved, the others are marked ahead
    MoveBatch batch_;
    std::set<VolumeAddress> set_aside_;  // with blocks that cannot be moved
    bool failed_ = false;  // a tree cannot be read, or members did not take what was moved
};

}  // namespace cowraid
