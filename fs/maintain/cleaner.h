// SPDX-License-Identifier: MIT
// Empties data block groups so that their slots, and with them whole stripes, are free again. Files go on
// naming the addresses their blocks had (fs/txn/remap.h).
//
// The way of a group, each step after the commit of the one before is durable:
//   1. it is marked in the map, takes no new blocks, and addresses in it are looked up from now on;
//   2. its live blocks move into free rows of other groups, a bounded number at a time, each read verified
//      and switched while no operation runs; what was freed meanwhile stays freed;
//   3. when nothing of it is used and no reader of an older commit is left, its checksums and windows leave
//      their trees, a bounded number per commit;
//   4. it leaves the map. Slots are given out again when that is durable.
// The map may be durable before the trees of the same transaction are: that is why 1 comes before 2 and 4
// after 3. A crash loses at most what was not committed; the next mount goes on with marked groups.
#pragma once

#include <atomic>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "alloc/clean_policy.h"
#include "base/buffer.h"
#include "fs/txn/ledger.h"
#include "fs/txn/store.h"
#include "fs/txn/transaction.h"

namespace cowraid {

// What the cleaner chooses by: how scarce free stripes are, whatever gives any back, or what the balance
// under way says.
enum class CleanWhen : uint8_t { kPolicy, kAny, kBalance };
enum class CleanProgress : uint8_t {
    kNothing,  // nothing to do, or no room to do it
    kWorked,  // there may be more
    kNeedsCommit,  // goes on after a commit, when no reader needs the one before
};

struct CleanerCounts {
    std::atomic<uint64_t> emptied_groups{0};
    std::atomic<uint64_t> moved_blocks{0};
    std::atomic<uint64_t> unmovable_blocks{0};  // that could not be read, or have no logical address
};

// All of it by the commit thread, between commits; counts by anybody.
class Cleaner {
public:
    Cleaner(Store& store, const CleanPolicy& policy) : store_(store), policy_(policy) { }

    // One bounded step. No locks held, no commit under way. `idle`: nobody has changed anything for a while.
    CleanProgress step(CleanWhen when, bool idle);
    [[nodiscard]] CleanPressure pressure(bool idle) const;
    // Free rows that moving the blocks of the group may take.
    [[nodiscard]] uint64_t room_for(const GroupNumbers& group) const;
    // Its blocks, or some of them, cannot be moved: it stays for this mount.
    [[nodiscard]] bool is_set_aside(VolumeAddress group) const { return set_aside_.count(group) != 0; }
    // No group is emptied any more in this mount.
    [[nodiscard]] bool failed() const { return failed_; }
    [[nodiscard]] const CleanPolicy& policy() const { return policy_; }
    [[nodiscard]] const CleanerCounts& counts() const { return counts_; }

private:
    // A block on its way.
    struct Move {
        VolumeAddress from, to;
        VolumeAddress logical;  // of files
        Checksum checksum;
        std::byte* memory;
    };
    // Goes on with a group that was marked before; chooses one and marks it. False: there is none. `waits`:
    // there is one, but no room for its blocks.
    bool resume(bool& waits);
    bool begin(CleanWhen when, bool idle);
    [[nodiscard]] std::optional<VolumeAddress> choose(CleanWhen when, bool idle) const;
    [[nodiscard]] std::vector<GroupNumbers> candidates() const;
    [[nodiscard]] GroupNumbers numbers_of(VolumeAddress group) const;
    [[nodiscard]] uint64_t stripe_blocks(VolumeAddress group) const;
    void wait_for_commit(Transaction& open);
    CleanProgress leave_trees(const View& view);
    CleanProgress leave_map();
    void set_aside();
    void finish_group();

    // cleaner_move.cc
    CleanProgress move(const View& view);
    CleanProgress make_room(const View& view, uint64_t block_count, ChangeReservation& reservation);
    Status read_blocks(const View& view, std::span<const BlockRun> runs, AlignedBuffer& memory,
                       std::vector<Move>& moves);
    Status read_singly(std::span<const BlockRun> runs, std::span<const BlockExpectation> expected,
                       std::byte* memory, std::vector<bool>& readable);
    Status write_blocks(const View& view, std::vector<Move>& moves);
    Result<bool> is_there(const View& view, VolumeAddress logical, VolumeAddress physical);
    bool arrived(const View& view, std::span<const Move> moves);
    Status switch_blocks(Transaction& open, std::span<const Move> moves);
    void abandon(Transaction& open, std::span<const Move> moves, Status why);

    Store& store_;
    const CleanPolicy policy_;
    CleanerCounts counts_;
    VolumeAddress group_;  // being emptied; not valid: none
    TransactionId wait_for_;  // its commit comes before the next step
    VolumeAddress next_;  // moving goes on here
    uint64_t unmovable_ = 0;  // blocks met since the group's begin that stay
    bool moved_any_ = false;  // since then
    std::set<VolumeAddress> set_aside_;  // with blocks that cannot be moved
    bool failed_ = false;  // members did not take what was moved: no more of it in this mount
};

}  // namespace cowraid
