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
    [[nodiscard]] bool empty() const { return chunks_.empty(); }
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

    std::map<uint64_t, Chunk> chunks_;  // by number, none of them empty
};

}  // namespace cowraid
