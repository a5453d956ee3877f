// SPDX-License-Identifier: MIT
#include "fs/maintain/balance_filter.h"

#include <algorithm>

namespace cowraid {

namespace {

bool overlaps(const FilterRange& range, uint64_t first, uint64_t bytes)
{
    return bytes > 0 && first <= range.most && first + (bytes - 1) >= range.least;
}

}  // namespace

bool BalanceFilter::all() const
{
    return usage.all() && stripes.all() && addresses.all() && places.all() && limit.all() && profiles == 0 &&
           member.value == 0;
}

bool BalanceFilter::matches(const ArrayGroup& group, const GroupNumbers& numbers) const
{
    const GroupRecord& record = group.record;
    if (!usage.has(divide_up(numbers.live_blocks * 100, std::max<uint64_t>(1, numbers.total_blocks))) ||
        !stripes.has(record.columns.size()) ||
        !overlaps(addresses, record.address.value, record.span_bytes()) ||
        (profiles != 0 && (profiles >> static_cast<uint32_t>(record.profile) & 1) == 0))
        return false;
    if (member.value == 0)
        return true;
    for (size_t column = 0; column < record.columns.size(); ++column)
        if (record.columns[column].member == member &&
            (places.all() || std::any_of(group.extents[column].begin(), group.extents[column].end(),
                                         [&](const ArrayGroup::Extent& extent) {
                                             return overlaps(places, extent.offset.value, extent.bytes);
                                         })))
            return true;
    return false;
}

}  // namespace cowraid
