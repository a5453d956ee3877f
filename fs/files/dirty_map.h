// SPDX-License-Identifier: MIT
// File data in memory that no member has yet: non-overlapping runs of whole blocks.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

#include "base/buffer.h"
#include "base/ref.h"
#include "format/extent_codec.h"
#include "fs/volume/node_bound.h"

namespace cowraid {

struct DirtyExtent {
    Ref<SharedBuffer> buffer;
    uint32_t buffer_block = 0;  // first block inside the buffer
    uint32_t block_count = 0;

    [[nodiscard]] std::byte* block(uint32_t index) const
    {
        return buffer->buffer.data() + (uint64_t{buffer_block} + index) * 4096;
    }
};

// Not thread-safe: guarded by the inode's mutex.
class DirtyMap {
public:
    // Where less than so many eighths of a buffer are left, the rest moves into one of its own: the memory of
    // what is dirty is bounded by its blocks. What replaces blocks is counted as dirty; an erasure counts
    // nothing.
    static constexpr uint32_t kShareAfterInsert = 2;
    static constexpr uint32_t kShareAfterErase = 7;
    using Map = std::map<uint64_t, DirtyExtent>;  // by first file block

    // Replaces what was there. Returns how many blocks of the range were not dirty before.
    uint64_t insert(uint64_t first_block, DirtyExtent extent);
    // Returns how many blocks went. With a share of 0 the rest stays in its buffer.
    uint64_t erase(uint64_t first_block, uint64_t block_count, uint32_t share = kShareAfterErase);
    // The memory of one block, or null.
    [[nodiscard]] std::byte* find(uint64_t block) const;
    // First extent that ends behind `block`.
    [[nodiscard]] Map::const_iterator first_ending_after(uint64_t block) const;
    [[nodiscard]] const Map& extents() const { return extents_; }
    [[nodiscard]] bool empty() const { return extents_.empty(); }
    [[nodiscard]] uint64_t block_count() const { return block_count_; }
    // Of an empty map: whether the file has something stored, or on its way, that the blocks to come may cut.
    void set_over_stored(bool over) { over_stored_ = over; }
    [[nodiscard]] DirtyRuns runs() const
    {
        return {static_cast<int64_t>(extents_.size()),
                over_stored_ ? std::distance(extents_.begin(), extents_.lower_bound(kFrameBlocksMax)) : 0};
    }
    void swap(DirtyMap& other);
    void clear();

private:
    // `behind`: the first extent behind the range.
    uint64_t erase(uint64_t first_block, uint64_t block_count, uint32_t share, Map::iterator& behind);

    Map extents_;
    uint64_t block_count_ = 0;
    bool over_stored_ = true;
};

}  // namespace cowraid
