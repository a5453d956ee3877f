// SPDX-License-Identifier: MIT
#include "fs/files/dirty_map.h"

#include <cstring>
#include <utility>

#include "base/units.h"

namespace cowraid {

namespace {

void leave_large_buffer(DirtyExtent& extent, uint32_t share)
{
    const uint64_t bytes = uint64_t{extent.block_count} * kBlockBytes;
    if (bytes * 8 >= extent.buffer->buffer.size() * share)
        return;
    Ref<SharedBuffer> own = make_ref<SharedBuffer>(bytes);
    std::memcpy(own->buffer.data(), extent.block(0), bytes);
    extent.buffer = std::move(own);
    extent.buffer_block = 0;
}

}  // namespace

uint64_t DirtyMap::insert(uint64_t first_block, DirtyExtent extent)
{
    Map::iterator behind;
    const uint64_t replaced = erase(first_block, extent.block_count, kShareAfterInsert, behind);
    const uint64_t news = extent.block_count - replaced;
    block_count_ += extent.block_count;
    extents_.emplace_hint(behind, first_block, std::move(extent));
    return news;
}

DirtyMap::Map::const_iterator DirtyMap::first_ending_after(uint64_t block) const
{
    auto at = extents_.upper_bound(block);
    if (at != extents_.begin()) {
        const auto before = std::prev(at);
        if (before->first + before->second.block_count > block)
            return before;
    }
    return at;
}

uint64_t DirtyMap::erase(uint64_t first_block, uint64_t block_count, uint32_t share)
{
    Map::iterator behind;
    return erase(first_block, block_count, share, behind);
}

uint64_t DirtyMap::erase(uint64_t first_block, uint64_t block_count, uint32_t share, Map::iterator& behind)
{
    const uint64_t end = first_block + block_count;
    uint64_t erased = 0;
    auto at = extents_.upper_bound(first_block);
    if (at != extents_.begin()) {
        const auto before = std::prev(at);
        if (before->first + before->second.block_count > first_block)
            at = before;
    }
    while (at != extents_.end() && at->first < end) {
        const uint64_t from = at->first;
        const uint64_t to = from + at->second.block_count;
        if (to > end) {
            DirtyExtent tail = at->second;
            tail.buffer_block += static_cast<uint32_t>(end - from);
            tail.block_count = static_cast<uint32_t>(to - end);
            leave_large_buffer(tail, share);
            extents_.emplace_hint(std::next(at), end, std::move(tail));
        }
        const uint64_t cut_from = from < first_block ? first_block : from;
        const uint64_t cut_to = to > end ? end : to;
        erased += cut_to - cut_from;
        if (from < first_block) {
            at->second.block_count = static_cast<uint32_t>(first_block - from);
            leave_large_buffer(at->second, share);
            ++at;
        } else {
            at = extents_.erase(at);
        }
    }
    behind = at;
    block_count_ -= erased;
    return erased;
}

std::byte* DirtyMap::find(uint64_t block) const
{
    const auto at = first_ending_after(block);
    if (at == extents_.end() || at->first > block)
        return nullptr;
    return at->second.block(static_cast<uint32_t>(block - at->first));
}

void DirtyMap::swap(DirtyMap& other)
{
    extents_.swap(other.extents_);
    std::swap(block_count_, other.block_count_);
    std::swap(over_stored_, other.over_stored_);
}

void DirtyMap::clear()
{
    extents_.clear();
    block_count_ = 0;
}

}  // namespace cowraid
