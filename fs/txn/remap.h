// SPDX-License-Identifier: MIT
// Blocks that were moved (fs/maintain/cleaner.h): files go on naming the address a block was written to, the
// remap tree says where it is. Its changes live in the transactions' memory like all others
// (Transaction::moved_to and moved_from), block by block, so that files whose blocks are neighbours never
// touch the same entry.
#pragma once

#include <atomic>
#include <set>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "btree/node_cache.h"
#include "fs/txn/transaction.h"
#include "raid56/array.h"

namespace cowraid {

// Blocks whose logical and whose physical addresses are neighbours.
struct RemappedRun {
    VolumeAddress logical;  // what extents say
    VolumeAddress physical;  // where the block is: reads, checksums and frees go by it
    uint64_t block_count = 0;

    [[nodiscard]] bool moved() const { return logical != physical; }
};

// Thread-safe.
class RemapLookup {
public:
    // `cache` and `array` outlive the object. `has_tree`: some commit has entries.
    RemapLookup(NodeCache& cache, const Array& array, bool has_tree);

    // Whether blocks of that address may be elsewhere. False costs nothing more: their group is in the map
    // and has never been emptied.
    [[nodiscard]] bool may_have_moved(VolumeAddress logical) const;
    // Appends where `block_count` blocks are, as of `view`, in runs that each stay inside one block group.
    // The logical addresses are of one group. An error means that the remap tree could not be read.
    Status resolve(const View& view, VolumeAddress logical, uint64_t block_count,
                   std::vector<RemappedRun>& out) const;
    // Logical addresses of blocks: out[i] for physical + i blocks; itself where the block never moved.
    Status logical_of(const View& view, VolumeAddress physical, std::span<VolumeAddress> out) const;
    // Before anything changes by what the tree says: kCorrupt where its two directions do not agree about the
    // blocks of `runs` (I-28).
    Status verify(const View& view, std::span<const RemappedRun> runs) const;

    // The group's blocks are about to move. Before the first entry.
    void add_emptying(VolumeAddress group_address);
    // It has left the map, and with it the array: may_have_moved() relies on that order.
    void remove_emptying(VolumeAddress group_address);
    [[nodiscard]] bool is_emptying(VolumeAddress group_address) const;

private:
    Status one_step(const View& view, VolumeAddress logical, uint64_t block_count,
                    std::vector<RemappedRun>& out) const;

    NodeCache& cache_;
    const Array& array_;
    std::atomic<bool> active_;
    mutable Mutex mutex_{LockRank::kLeaf};
    std::set<VolumeAddress> emptying_ CW_GUARDED_BY(mutex_);
};

struct Store;

// Appends where blocks of a file are that it is about to give up; an error means that the remap tree could
// not be read, or that it gives the blocks a physical address that is said to be another's. The logical
// addresses are of one group.
Status find_physical(Store& store, const View& view, VolumeAddress logical, uint64_t block_count,
                     std::vector<RemappedRun>& out);
// Frees blocks that a file no longer refers to, on behalf of `transaction`, and forgets where they went. The
// caller owns the file's mapping and has stayed in the gate since find_physical(). An error means that the
// trees contradict each other.
Status free_physical(Store& store, Transaction& transaction, std::span<const RemappedRun> runs);

}  // namespace cowraid
