// SPDX-License-Identifier: MIT
#include "alloc/block_range.h"

#include <algorithm>

namespace cowraid {

void append_range(std::vector<BlockRange>& ranges, const BlockRange& range)
{
    if (!ranges.empty() && ranges.back().end() == range.first)
        ranges.back().count += range.count;
    else
        ranges.push_back(range);
}

void append_used_ranges(const RowRegion& region, std::vector<BlockRange>& ranges)
{
    const uint64_t rows = region.geometry.rows();
    const uint64_t base = region.first_stripe * region.geometry.stripe_data_blocks();
    if (region.row_count == rows) {
        append_range(ranges, {base, region.used_blocks});
        return;
    }
    uint64_t left = region.used_blocks;
    for (uint64_t first = base + region.first_row; left > 0; first += rows) {
        const uint64_t part = std::min<uint64_t>(left, region.row_count);
        append_range(ranges, {first, part});
        left -= part;
    }
}

uint64_t RangeCursor::position() const
{
    return index_ < ranges_.size() ? ranges_[index_].first + taken_ : ~uint64_t{0};
}

BlockRange RangeCursor::next_below(uint64_t limit)
{
    const uint64_t first = position();
    if (first >= limit)
        return {};
    const BlockRange& range = ranges_[index_];
    const BlockRange part = {first, std::min(limit, range.end()) - first};
    taken_ += part.count;
    if (taken_ == range.count) {
        ++index_;
        taken_ = 0;
    }
    return part;
}

// As declared in allocator.h.
VolumeAddress RowRegion::block_address(uint64_t index) const
{
    const uint64_t stripe_part = uint64_t{geometry.data_columns} * row_count;
    const uint64_t in_stripe = index % stripe_part;
    const BlockPlace place = {
        .stripe = first_stripe + index / stripe_part,
        .column = static_cast<uint32_t>(in_stripe / row_count),
        .row = first_row + static_cast<uint32_t>(in_stripe % row_count),
    };
    return group_address + offset_of(geometry, place);
}

uint64_t RowRegion::block_count() const
{
    return stripe_count * geometry.data_columns * row_count;
}

}  // namespace cowraid
