// SPDX-License-Identifier: MIT
// Runs of blocks inside one group, counted from its first data block.
#pragma once

#include <cstdint>
#include <vector>

#include "alloc/allocator.h"

namespace cowraid {

struct BlockRange {
    uint64_t first = 0;
    uint64_t count = 0;

    [[nodiscard]] uint64_t end() const { return first + count; }
    friend auto operator<=>(const BlockRange&, const BlockRange&) = default;
};

// Appends `range`, joined to the last one where they touch.
void append_range(std::vector<BlockRange>& ranges, const BlockRange& range);

// Appends the blocks of `region` that carry data: one range for whole stripes, else one per column.
void append_used_ranges(const RowRegion& region, std::vector<BlockRange>& ranges);

// Reads sorted disjoint ranges piece by piece.
class RangeCursor {
public:
    explicit RangeCursor(const std::vector<BlockRange>& ranges) : ranges_(ranges) { }

    // First block not read yet; ~0 at the end.
    [[nodiscard]] uint64_t position() const;
    // The next piece below `limit`; count 0 when there is none.
    BlockRange next_below(uint64_t limit);

private:
    const std::vector<BlockRange>& ranges_;
    size_t index_ = 0;
    uint64_t taken_ = 0;  // blocks of ranges_[index_] already read
};

}  // namespace cowraid
