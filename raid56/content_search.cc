// SPDX-License-Identifier: MIT
#include "raid56/content_search.h"

#include <algorithm>
#include <cstring>

namespace cowraid {

void ContentSearch::offer(uint32_t block, const std::byte* content)
{
    std::vector<const std::byte*>& have = candidates_[block];
    const bool repeated = std::any_of(have.begin(), have.end(), [&](const std::byte* other) {
        return std::memcmp(other, content, kBlockBytes) == 0;
    });
    if (!repeated)
        have.push_back(content);
}

void ContentSearch::place(uint32_t block, const std::byte* content)
{
    std::byte* target = piece_.memory + size_t{block} * kBlockBytes;
    if (content != target)
        std::memcpy(target, content, kBlockBytes);
}

bool ContentSearch::matches() const
{
    return piece_.check->matches({piece_.memory, size_t{piece_.block_count} * kBlockBytes});
}

bool ContentSearch::accepts(const std::vector<const std::byte*>& contents)
{
    for (uint32_t block = 0; block < piece_.block_count; ++block)
        place(block, contents[block]);
    return matches();
}

// Counts through the choices like an odometer, the last block fastest, and places what changes.
bool ContentSearch::next_choice()
{
    for (uint32_t block = piece_.block_count; block-- > 0;) {
        const bool wraps = ++choice_[block] == candidates_[block].size();
        if (wraps)
            choice_[block] = 0;
        if (candidates_[block].size() > 1)
            place(block, candidates_[block][choice_[block]]);
        if (!wraps)
            return true;
    }
    return false;
}

bool ContentSearch::run()
{
    choice_.assign(piece_.block_count, 0);
    for (uint32_t block = 0; block < piece_.block_count; ++block) {
        if (candidates_[block].empty())
            return false;
        place(block, candidates_[block][0]);
    }
    for (uint32_t trial = 0; trial < kMaxTrials; ++trial) {
        if (matches())
            return true;
        if (!next_choice())
            return false;
    }
    return false;
}

}  // namespace cowraid
