// SPDX-License-Identifier: MIT
#include "fuse/page_set.h"

#include <algorithm>

namespace cowraid {

PageSet::Bits& PageSet::Chunk::spread()
{
    if (!bits) {
        bits = std::make_unique<Bits>();
        for (uint64_t page = begin; page < end; ++page)
            bits->set(page);
    }
    return *bits;
}

void PageSet::Chunk::add(uint64_t from, uint64_t to)
{
    if (!bits && begin == end) {
        begin = from;
        end = to;
    } else if (!bits && from <= end && begin <= to) {
        begin = std::min(begin, from);
        end = std::max(end, to);
    } else {
        Bits& pages = spread();
        for (uint64_t page = from; page < to; ++page)
            pages.set(page);
    }
}

bool PageSet::Chunk::remove(uint64_t from, uint64_t to)
{
    if (!bits) {
        from = std::max(from, begin);
        to = std::min(to, end);
        if (from >= to)
            return false;
        if (from == begin || to == end) {
            (from == begin ? begin : end) = from == begin ? to : from;
            return true;
        }
    }
    Bits& pages = spread();
    bool found = false;
    for (uint64_t page = from; page < to; ++page) {
        found = found || pages.test(page);
        pages.reset(page);
    }
    return found;
}

void PageSet::become_all()
{
    chunks_.clear();
    spread_count_ = 0;
    all_ = true;
}

void PageSet::add(uint64_t begin, uint64_t end)
{
    while (!all_ && begin < end) {
        const uint64_t number = begin / kChunkPages, base = number * kChunkPages;
        const uint64_t stop = std::min(end, base + kChunkPages);
        Chunk& chunk = chunks_[number];
        const bool was_spread = chunk.bits != nullptr;
        chunk.add(begin - base, stop - base);
        spread_count_ += chunk.bits != nullptr && !was_spread ? 1 : 0;
        begin = stop;
    }
}

bool PageSet::remove(uint64_t begin, uint64_t end)
{
    bool found = all_ && begin < end;
    auto at = chunks_.lower_bound(begin / kChunkPages);
    while (at != chunks_.end() && at->first * kChunkPages < end) {
        const uint64_t base = at->first * kChunkPages;
        Chunk& chunk = at->second;
        spread_count_ -= chunk.bits != nullptr ? 1 : 0;
        if (chunk.remove(std::max(begin, base) - base, std::min(end - base, kChunkPages)))
            found = true;
        if (chunk.empty()) {
            at = chunks_.erase(at);
            continue;
        }
        spread_count_ += chunk.bits != nullptr ? 1 : 0;
        ++at;
    }
    return found;
}

std::vector<std::pair<uint64_t, uint64_t>> PageSet::ranges() const
{
    std::vector<std::pair<uint64_t, uint64_t>> ranges;
    if (all_)
        ranges.emplace_back(0, UINT64_MAX);
    for (const auto& [number, chunk] : chunks_) {
        for (uint64_t page = 0; page < kChunkPages; ++page) {
            const uint64_t at = number * kChunkPages + page;
            if (!chunk.has(page))
                continue;
            if (ranges.empty() || ranges.back().second != at)
                ranges.emplace_back(at, at);
            ++ranges.back().second;
        }
    }
    return ranges;
}

}  // namespace cowraid
