// SPDX-License-Identifier: MIT
// Space promised before it is taken. Data: every dirty block and every block that fallocate promised has a
// place in a free row. Metadata: the nodes that a commit of everything pending could need.
#pragma once

#include <cstdint>

#include "base/mutex.h"
#include "base/units.h"

namespace cowraid {

class SpaceBudget {
public:
    // What the allocator and the slots offer now, minus what is kept back. Commit thread.
    void set_data_room(uint64_t blocks);
    // `free_blocks`: in free rows of metadata groups; `used_nodes`: nodes of all trees; `reserve_blocks` is
    // for operations that free space.
    void set_metadata_room(uint64_t free_blocks, uint64_t used_nodes, uint64_t reserve_blocks);

    // Promises data blocks; false when they are not there. Forced promises always succeed: zeroing the tail
    // of a truncated file, writes into space that fallocate promised already.
    [[nodiscard]] bool promise_data(uint64_t blocks);
    void force_data(uint64_t blocks);
    void return_data(uint64_t blocks);
    // In one step: `blocks` of the promises were taken from the allocator, which now offers `room`.
    void data_taken(uint64_t blocks, uint64_t room);
    // Blocks that a new writer could still get.
    [[nodiscard]] uint64_t data_available() const;

    // Whether a commit of `entries` changed items of `bytes` payload and `data_blocks` of new file data
    // surely fits, leaving the reserve untouched unless `use_reserve`.
    struct Pending {
        uint64_t entries = 0, bytes = 0, data_blocks = 0;
    };
    [[nodiscard]] bool metadata_fits(const Pending& pending, bool use_reserve) const;
    [[nodiscard]] uint64_t metadata_reserve_blocks() const;

private:
    mutable Mutex mutex_{LockRank::kLeaf};
    uint64_t data_room_ CW_GUARDED_BY(mutex_) = 0;
    uint64_t promised_ CW_GUARDED_BY(mutex_) = 0;
    uint64_t metadata_free_ CW_GUARDED_BY(mutex_) = 0;
    uint64_t used_nodes_ CW_GUARDED_BY(mutex_) = 0;
    uint64_t metadata_reserve_ CW_GUARDED_BY(mutex_) = 0;
};

}  // namespace cowraid
