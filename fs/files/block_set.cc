// SPDX-License-Identifier: MIT
#include "fs/files/block_set.h"

#include <algorithm>
#include <iterator>

namespace cowraid {

int64_t BlockSet::add(uint64_t first_block, uint64_t block_count)
{
    if (block_count == 0)
        return 0;
    const size_t before = ranges_.size();
    uint64_t end = first_block + block_count;
    auto at = ranges_.upper_bound(first_block);
    if (at != ranges_.begin() && std::prev(at)->second >= first_block)
        --at;
    while (at != ranges_.end() && at->first <= end) {
        first_block = std::min(first_block, at->first);
        end = std::max(end, at->second);
        at = ranges_.erase(at);
    }
    ranges_.emplace_hint(at, first_block, end);
    return static_cast<int64_t>(ranges_.size()) - static_cast<int64_t>(before);
}

}  // namespace cowraid
