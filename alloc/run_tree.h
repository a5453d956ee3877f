// SPDX-License-Identifier: MIT
// Which stripes are free, and where the runs of free ones are. A binary tree over leaves of 256 stripes keeps
// for every node the free run at its start, at its end, and the longest inside, so that a run of a wanted
// length is found in logarithmic time however full the group is. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "alloc/bitmap.h"

namespace cowraid {

class RunTree {
public:
    // Numbers 0..size-1, all free; size at least 1.
    explicit RunTree(uint64_t size);

    void set_free(uint64_t first, uint64_t count);
    void set_used(uint64_t first, uint64_t count);

    [[nodiscard]] uint64_t free_count() const { return free_count_; }
    [[nodiscard]] uint64_t longest() const { return nodes_[1].longest; }
    // Start of the lowest run of at least `count` free numbers; 1 <= count <= longest().
    [[nodiscard]] uint64_t find(uint64_t count) const;
    // Free numbers from `first` on without a gap, at most `limit`. 0 beyond the end.
    [[nodiscard]] uint64_t run_at(uint64_t first, uint64_t limit) const;
    [[nodiscard]] uint64_t memory_bytes() const;

private:
    static constexpr uint64_t kLeafBits = Bits256::kBits;
    struct Node {
        uint64_t prefix = 0;
        uint64_t suffix = 0;
        uint64_t longest = 0;
    };

    [[nodiscard]] Bits256 leaf_bits(uint64_t leaf) const;
    [[nodiscard]] Node leaf_node(uint64_t leaf) const;
    void refresh(uint64_t first, uint64_t count);

    uint64_t size_;
    uint64_t leaf_count_;  // a power of two; numbers beyond size_ are never free
    uint64_t free_count_;
    Bitmap free_;
    std::vector<Node> nodes_;  // heap order: node 1 is the root, leaves from leaf_count_ on
};

}  // namespace cowraid
