// SPDX-License-Identifier: MIT
// A sparse set of numbers with "the first member at or after x" in a few steps: above the bits stand levels
// that say which words below are not zero. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

namespace cowraid {

class SummaryBitmap {
public:
    static constexpr uint64_t kNone = ~uint64_t{0};

    // Numbers below `size`; empty.
    explicit SummaryBitmap(uint64_t size);

    void insert(uint64_t number);
    void erase(uint64_t number);
    // kNone when there is none.
    [[nodiscard]] uint64_t find(uint64_t from) const;
    [[nodiscard]] uint64_t memory_bytes() const;

private:
    std::vector<std::vector<uint64_t>> levels_;  // the numbers, then ever shorter summaries
};

}  // namespace cowraid
