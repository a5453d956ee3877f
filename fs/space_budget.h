// SPDX-License-Identifier: MIT
// Space promised before it is taken. Data: every dirty block and every block that fallocate promised has a
// place in a free row. Metadata: the nodes that a commit of everything pending could need.
#pragma once

#include <cstdint>

#include "base/mutex.h"
#include "base/units.h"

namespace cowraid {

// What a commit has to record.
struct PendingChanges {
    uint64_t entries = 0, bytes = 0;  // changed items of the file tree, and their payload
    uint64_t checksum_windows = 0, remap_windows = 0;  // changed items of those trees
    uint64_t data_blocks = 0;  // dirty: no items yet
    uint64_t data_runs = 0;  // pieces of files that these blocks are

    PendingChanges& operator+=(const PendingChanges& other);
    PendingChanges& operator-=(const PendingChanges& other);
};

// What there is for nodes, and what decides how many a change takes.
struct MetadataRoom {
    uint64_t free_blocks = 0;  // in free rows of metadata groups
    uint64_t reserve_blocks = 0;  // kept back for operations that free space
    uint64_t used_nodes = 0;  // of all trees
    uint64_t address_blocks = 0;  // of all groups, parity included
    uint64_t group_count = 0;
    uint64_t stripe_blocks = 0;  // free data blocks in stripes that hold nothing
    uint64_t blocks_per_stripe = 1;  // of data, in the smallest stripe
    uint64_t parity = 0;  // blocks of it that change with a block of data
};

// Blocks of nodes that a commit of `pending` takes at most: copies of what it changes, halves of nodes that
// it splits, and what is new. docs/DESIGN.md, "Space", derives it.
uint64_t node_blocks_bound(const MetadataRoom& room, const PendingChanges& pending);

// Groups that a volume with `data_blocks` blocks of data comes to need, in blocks, when each of them is an
// extent of its own: for the nodes of file trees, and for those of the other trees. Includes room for a
// commit to copy what it changes, and the reserve. `checksums_per_data`: blocks with a checksum, parity
// included, per block of data.
struct MetadataNeed {
    uint64_t file_blocks = 0, system_blocks = 0;
};
MetadataNeed metadata_need(uint64_t data_blocks, double checksums_per_data);

class SpaceBudget {
public:
    // What the allocator and the slots offer now, minus what is kept back. Commit thread.
    void set_data_room(uint64_t blocks);
    void set_metadata_room(const MetadataRoom& room);

    // Promises data blocks; false when they are not there. Forced promises always succeed: zeroing the tail
    // of a truncated file, writes into space that fallocate promised already.
    [[nodiscard]] bool promise_data(uint64_t blocks);
    void force_data(uint64_t blocks);
    void return_data(uint64_t blocks);
    // In one step: `blocks` of the promises were taken from the allocator, which now offers `room`.
    void data_taken(uint64_t blocks, uint64_t room);
    // Whether there may be room for `blocks` more once what others write is written and what they overwrite
    // is free: `returning` blocks.
    [[nodiscard]] bool may_fit_data(uint64_t blocks, uint64_t returning) const;
    // Blocks that a new writer could still get.
    [[nodiscard]] uint64_t data_available() const;

    // An operation is about to change as much. To be called before it looks whether that fits, and undone
    // when its changes are pending or it gives up: so that of two that begin together each sees the other.
    void claim(const PendingChanges& changes);
    void unclaim(const PendingChanges& changes);
    // Whether a commit of `pending` and all claims surely fits, leaving the reserve alone unless
    // `use_reserve`.
    [[nodiscard]] bool metadata_fits(const PendingChanges& pending, bool use_reserve) const;
    // Whether `changes` may fit once nothing else is pending and `returning` blocks are free.
    [[nodiscard]] bool may_fit_metadata(const PendingChanges& changes, uint64_t returning) const;
    [[nodiscard]] MetadataRoom metadata_room() const;

private:
    mutable Mutex mutex_{LockRank::kLeaf};
    uint64_t data_room_ CW_GUARDED_BY(mutex_) = 0;
    uint64_t promised_ CW_GUARDED_BY(mutex_) = 0;
    MetadataRoom room_ CW_GUARDED_BY(mutex_);
    PendingChanges claimed_ CW_GUARDED_BY(mutex_);
};

}  // namespace cowraid
