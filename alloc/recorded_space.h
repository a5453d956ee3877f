// SPDX-License-Identifier: MIT
// The recorded view of one block group: what the last collected transaction refers to, one bit per block, and
// per window of stripes when it was last written. Not thread-safe: guarded by the group's record lock.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "alloc/bitmap.h"
#include "alloc/block_range.h"

namespace cowraid {

class RecordedSpace {
public:
    // Everything free and never written.
    RecordedSpace(VolumeAddress address, const Geometry& geometry);

    // Takes over a window read from disk, each at most once. kCorrupt when it does not describe whole windows
    // of this group or contradicts itself; then the object must be dropped.
    Status load(const SpaceWindow& window);

    // Applies what happened on behalf of `transaction` and earlier ones: `allocated`, then `freed`, both
    // sorted and disjoint in themselves. Blocks of `rewritten` (sorted) are neither: their windows were
    // written. Appends the windows that are not as they were at the last call.
    void apply(TransactionId transaction, const std::vector<BlockRange>& allocated,
               const std::vector<BlockRange>& freed, const std::vector<BlockRange>& rewritten,
               std::vector<SpaceWindow>& changed);
    // `transaction` is durable as `generation`: so are the writes of it and of earlier ones.
    void set_durable(TransactionId transaction, Generation generation);

    [[nodiscard]] bool is_used(uint64_t block) const { return used_.test(block); }
    [[nodiscard]] GroupUsage usage() const;
    [[nodiscard]] uint64_t memory_bytes() const;

private:
    // Sums over the stripes of one window.
    struct WindowState {
        Generation last_write;
        uint32_t used_blocks = 0;
        uint32_t free_rows = 0;
        uint32_t free_stripes = 0;
    };

    [[nodiscard]] BlockRange window_blocks(uint64_t window) const;
    [[nodiscard]] WindowState measure(uint64_t window) const;
    void store_state(uint64_t window, const WindowState& state);
    // True when the window must be recorded again.
    bool apply_window(uint64_t window, TransactionId transaction, RangeCursor& allocated, RangeCursor& freed,
                      RangeCursor& rewritten);
    bool note_writer(uint64_t window, TransactionId transaction);
    [[nodiscard]] SpaceWindow describe(uint64_t window) const;

    VolumeAddress address_;
    Geometry geometry_;
    uint64_t stripe_blocks_;
    uint64_t window_blocks_;  // of every window but the last
    Bitmap used_;
    std::vector<WindowState> windows_;
    uint64_t used_blocks_ = 0;
    uint64_t free_rows_;
    uint64_t free_stripes_;
    // Windows written by transactions that are not durable yet, with the newest of them.
    std::unordered_map<uint64_t, TransactionId> writers_;
    std::vector<uint64_t> scratch_;  // bits of the window being changed, as they were
};

}  // namespace cowraid
