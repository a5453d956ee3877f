// SPDX-License-Identifier: MIT
// A set of block numbers as ranges.
#pragma once

#include <cstdint>
#include <map>

namespace cowraid {

// Not thread-safe.
class BlockSet {
public:
    // Ranges that neither overlap nor touch: first block to the block behind the last.
    using Ranges = std::map<uint64_t, uint64_t>;

    // `first_block` + `block_count` must not wrap. Returns how many ranges more there are than before.
    int64_t add(uint64_t first_block, uint64_t block_count);
    [[nodiscard]] const Ranges& ranges() const { return ranges_; }
    [[nodiscard]] bool empty() const { return ranges_.empty(); }
    void clear() { ranges_.clear(); }

private:
    Ranges ranges_;
};

}  // namespace cowraid
