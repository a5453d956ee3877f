// SPDX-License-Identifier: MIT
// Gives the slots of block groups that hold nothing back to their members, so that groups of another content
// or width can have them: beyond the room that is kept ahead, and those that a better group could replace.
//
// The way of a group: it takes no blocks any more; what is recorded about it leaves the trees; when that
// commit is durable it leaves the map; with the commit after that its slots are free (I-30). A crash in
// between leaves an empty group.
#pragma once

#include <atomic>
#include <map>
#include <set>
#include <span>

#include "alloc/allocator.h"
#include "fs/txn/transaction.h"

namespace cowraid {

struct Store;

class EmptyGroups {
public:
    explicit EmptyGroups(Store& store) : store_(store) { }

    // What can be done between two commits. Commit thread, no commit under way.
    void step();
    // The next commit lets groups go on. Commit thread.
    [[nodiscard]] bool wants_commit() const;
    // Data blocks of groups that leave the map as soon as one commit is durable. By anybody.
    [[nodiscard]] uint64_t leaving_blocks() const { return leaving_blocks_; }
    [[nodiscard]] bool is_leaving(VolumeAddress group) const;  // commit thread
    // Groups that blocks were moved out of, and that left. By anybody.
    [[nodiscard]] uint64_t emptied_groups() const { return emptied_groups_; }
    // Some group cannot leave: no other is closed for it. Those that are closed do leave.
    // Commit thread, as the next three.
    [[nodiscard]] bool failed() const { return !stays_.empty(); }
    // What could not be read may be readable by now.
    void try_again() { stays_.clear(); }
    // If it holds nothing, it does not leave until somebody tries again.
    [[nodiscard]] bool stays(const GroupNumbers& group) const;
    // It holds nothing, and only commits keep it.
    [[nodiscard]] bool waits_for_commit(const GroupNumbers& group) const;

private:
    void choose(uint32_t content);
    [[nodiscard]] std::map<VolumeAddress, bool> in_balance(uint32_t content) const;
    [[nodiscard]] bool replaceable(VolumeAddress group) const;
    [[nodiscard]] bool kept(uint32_t content, uint64_t blocks) const;
    bool give_up_room(uint32_t content, uint64_t blocks);
    void leave(const View& view);
    void drop(std::span<const VolumeAddress> groups);

    Store& store_;
    std::set<VolumeAddress> leaving_;
    std::atomic<uint64_t> leaving_blocks_{0};
    std::atomic<uint64_t> emptied_groups_{0};
    TransactionId wait_for_;  // its commit comes before the next step
    bool no_room_ = false;  // for nodes, to let what is recorded about them leave the trees
    std::set<VolumeAddress> stays_;  // trees about them could not be read
};

}  // namespace cowraid
