// SPDX-License-Identifier: MIT
#include "alloc/summary_bitmap.h"

#include <bit>
#include <cstddef>

namespace cowraid {

SummaryBitmap::SummaryBitmap(uint64_t size)
{
    do {
        size = size / 64 + 1;
        levels_.emplace_back(size, 0);
    } while (size > 1);
}

void SummaryBitmap::insert(uint64_t number)
{
    for (std::vector<uint64_t>& level : levels_) {
        uint64_t& word = level[number / 64];
        const bool was_empty = word == 0;
        word |= uint64_t{1} << (number % 64);
        if (!was_empty)
            return;
        number /= 64;
    }
}

void SummaryBitmap::erase(uint64_t number)
{
    for (std::vector<uint64_t>& level : levels_) {
        uint64_t& word = level[number / 64];
        word &= ~(uint64_t{1} << (number % 64));
        if (word != 0)
            return;
        number /= 64;
    }
}

uint64_t SummaryBitmap::find(uint64_t from) const
{
    uint64_t position = from;
    for (size_t level = 0; level < levels_.size(); ++level) {
        const uint64_t index = position / 64;
        if (index >= levels_[level].size())
            return kNone;
        const uint64_t word = levels_[level][index] & (~uint64_t{0} << (position % 64));
        if (word != 0) {
            position = index * 64 + static_cast<uint64_t>(std::countr_zero(word));
            while (level > 0) {
                --level;
                position = position * 64 + static_cast<uint64_t>(std::countr_zero(levels_[level][position]));
            }
            return position;
        }
        position = index + 1;
    }
    return kNone;
}

uint64_t SummaryBitmap::memory_bytes() const
{
    uint64_t words = 0;
    for (const std::vector<uint64_t>& level : levels_)
        words += level.size();
    return words * sizeof(uint64_t);
}

}  // namespace cowraid
