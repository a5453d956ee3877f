// SPDX-License-Identifier: MIT
#include "fs/space_budget.h"

#include <algorithm>

#include "base/assert.h"
#include "format/items.h"

namespace cowraid {

void SpaceBudget::set_data_room(uint64_t blocks)
{
    MutexLock lock(mutex_);
    data_room_ = blocks;
}

void SpaceBudget::set_metadata_room(uint64_t free_blocks, uint64_t used_nodes, uint64_t reserve_blocks)
{
    MutexLock lock(mutex_);
    metadata_free_ = free_blocks;
    used_nodes_ = used_nodes;
    metadata_reserve_ = reserve_blocks;
}

bool SpaceBudget::promise_data(uint64_t blocks)
{
    MutexLock lock(mutex_);
    if (promised_ + blocks > data_room_)
        return false;
    promised_ += blocks;
    return true;
}

void SpaceBudget::force_data(uint64_t blocks)
{
    MutexLock lock(mutex_);
    promised_ += blocks;
}

void SpaceBudget::return_data(uint64_t blocks)
{
    MutexLock lock(mutex_);
    CW_ASSERT(blocks <= promised_);
    promised_ -= blocks;
}

void SpaceBudget::data_taken(uint64_t blocks, uint64_t room)
{
    MutexLock lock(mutex_);
    CW_ASSERT(blocks <= promised_);
    promised_ -= blocks;
    data_room_ = room;
}

uint64_t SpaceBudget::data_available() const
{
    MutexLock lock(mutex_);
    return data_room_ > promised_ ? data_room_ - promised_ : 0;
}

bool SpaceBudget::metadata_fits(const Pending& pending, bool use_reserve) const
{
    MutexLock lock(mutex_);
    // File tree: every entry may dirty its own leaf and part of a path, but never more than all nodes;
    // new payload fills leaves at least half. Checksums: 8 bytes a block with parity, in windows that are
    // dense for streams; free space and root trees: few nodes, covered by the constant and the copy of all.
    const uint64_t copied = std::min(pending.entries * 2 + pending.data_blocks / 16, used_nodes_);
    const uint64_t fresh = divide_up(pending.bytes + pending.entries * 64, kNodeBytes / 2);
    const uint64_t sums = divide_up(pending.data_blocks * 16, kNodeBytes / 2);
    const uint64_t nodes = copied + fresh + sums + 32;
    const uint64_t blocks = nodes * (kNodeBytes / kBlockBytes);
    return blocks + (use_reserve ? 0 : metadata_reserve_) <= metadata_free_;
}

uint64_t SpaceBudget::metadata_reserve_blocks() const
{
    MutexLock lock(mutex_);
    return metadata_reserve_;
}

}  // namespace cowraid
