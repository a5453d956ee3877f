// SPDX-License-Identifier: MIT
// A set of pages of a file, small for files read from end to end and for pages taken out one by one.
#pragma once

#include <bitset>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace cowraid {

// Pages count from 0; ranges are half-open. Not thread-safe.
class PageSet {
public:
    void add(uint64_t begin, uint64_t end);
    // Returns whether one of them was in the set.
    bool remove(uint64_t begin, uint64_t end);
    [[nodiscard]] bool empty() const { return !all_ && chunks_.empty(); }
    [[nodiscard]] bool has_all() const { return all_; }
    // From now on it holds every page, in no memory.
    void become_all();
    // Bytes, roughly.
    [[nodiscard]] size_t memory() const
    {
        return chunks_.size() * kChunkBytes + spread_count_ * sizeof(Bits);
    }
    // Rising, with gaps between them. For tests: as slow as the set is large.
    [[nodiscard]] std::vector<std::pair<uint64_t, uint64_t>> ranges() const;

private:
    static constexpr uint64_t kChunkPages = 4096;
    using Bits = std::bitset<kChunkPages>;

    // One range of pages, or any pages.
    struct Chunk {
        uint64_t begin = 0, end = 0;  // without bits
        std::unique_ptr<Bits> bits;

        Bits& spread();
        void add(uint64_t from, uint64_t to);
        bool remove(uint64_t from, uint64_t to);
        [[nodiscard]] bool empty() const { return bits ? bits->none() : begin == end; }
        [[nodiscard]] bool has(uint64_t page) const
        {
            return bits ? bits->test(page) : page >= begin && page < end;
        }
    };

    static constexpr size_t kChunkBytes = sizeof(std::pair<uint64_t, Chunk>) + 48;  // and what the map adds

    std::map<uint64_t, Chunk> chunks_;  // by number, none of them empty
    size_t spread_count_ = 0;  // of them, with bits
    bool all_ = false;
};

}  // namespace cowraid
