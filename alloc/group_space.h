// SPDX-License-Identifier: MIT
// The allocation view of one block group: which rows may be written. Two bits per block (used: allocated, or
// freed and not released; live: allocated and not freed) and an index of stripes by their free rows.
// Not thread-safe: guarded by the group's lock.
//
// A row may be handed out when no data block of it is used. Pads of a handed out row are never marked: the
// row is taken until its last used block is released. Until then it is a partial row; its free blocks may be
// handed out one by one, to be written in place.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "alloc/bitmap.h"
#include "alloc/block_range.h"
#include "alloc/row_mask.h"
#include "alloc/run_tree.h"
#include "alloc/summary_bitmap.h"

namespace cowraid {

// What one call of allocate() still needs, and the regions it got so far.
struct SpaceRequest {
    Stream stream = Stream::kData;
    uint32_t unit_blocks = 1;
    uint64_t units = 0;  // still to be placed
    size_t first_own = 0;  // regions before this one belong to other groups: never joined
    std::vector<RowRegion> regions;
};

class GroupSpace {
public:
    // Everything free.
    GroupSpace(VolumeAddress address, const Geometry& geometry);

    // Marks the used blocks of a recorded window, which must be valid, used and live.
    void load(const SpaceWindow& window);

    // Places units into whole free stripes, then the rest into the stream's open stripe or a new one.
    // Leaves request.units > 0 when that is not enough.
    void take_stripes(SpaceRequest& request);
    // Places units into free rows of partly used stripes.
    void take_fragments(SpaceRequest& request);
    // Takes up to `wanted` blocks from rows that hold other blocks, and appends them, runs of one chunk each.
    // Returns how many.
    uint64_t take_of_partial_rows(uint64_t wanted, std::vector<BlockRange>& out);
    // Takes back what nobody has seen: how many blocks. Those that somebody freed, to whom a damaged tree
    // gave them while they were free, stay with that free.
    uint64_t give_back(const RowRegion& region);

    // The blocks are no longer live. False, and nothing changed, when one of them was not.
    [[nodiscard]] bool end_life(const BlockRange& range);
    // Freed blocks become free; `ranges` rise.
    void release(std::span<const BlockRange> ranges);

    // As Allocator::hold_stripes(). How many stripes there are in `out` more.
    uint64_t hold_stripes(Allocator::Hold which, uint64_t shortest, uint64_t most, Allocator::HoldWalk& walk,
                          std::vector<StripeRun>& out);
    void let_go(const StripeRun& stripes, Allocator::LetGo as);
    [[nodiscard]] bool has_freed() const { return freed_.find(0) != kNone; }

    [[nodiscard]] bool is_live(uint64_t block) const { return live_.test(block); }
    // Appends the first `wanted` or fewer live blocks from `from` on.
    void live_blocks(const BlockRange& within, uint64_t wanted, std::vector<BlockRange>& out) const;
    // Appends those of a range that were freed and may not be allocated yet, in runs.
    void pinned_blocks(const BlockRange& within, std::vector<BlockRange>& out) const;
    // Units that share their rows with fewer others than fit there, `most` in a row at most: out[n] gets
    // those that are n + 1 in theirs, until it has `unit_count`.
    void sparse_units(uint32_t unit_blocks, uint32_t most, uint64_t unit_count,
                      std::vector<std::vector<VolumeAddress>>& out) const;
    [[nodiscard]] uint64_t free_rows() const { return free_rows_; }
    [[nodiscard]] uint64_t partial_row_blocks() const { return partial_row_blocks_; }
    [[nodiscard]] uint64_t free_stripes() const { return free_stripes_.free_count(); }
    [[nodiscard]] uint64_t memory_bytes() const;

private:
    static constexpr uint64_t kNone = SummaryBitmap::kNone;
    // Where a stream goes on.
    struct StreamPlace {
        uint64_t open_stripe = kNone;  // took the last tail, may have free rows left
        uint64_t next_stripe = 0;  // behind the last stripe it took
    };

    [[nodiscard]] StreamPlace& place(const SpaceRequest& request);
    [[nodiscard]] uint64_t rows_needed(const SpaceRequest& request) const;
    [[nodiscard]] StripeRun find_stripes(uint64_t from, uint64_t wanted) const;
    [[nodiscard]] uint64_t find_partial(uint64_t wanted_rows, uint32_t unit_blocks) const;
    [[nodiscard]] uint64_t find_tail_stripe(const SpaceRequest& request);
    void take_whole(SpaceRequest& request);
    void take_tail(SpaceRequest& request);
    void take_open(SpaceRequest& request);
    void take_region(SpaceRequest& request, const StripeRun& stripes, const RowRun& rows, uint64_t units);
    void mark(const RowRegion& region);
    void set_freed(const StripeRun& stripes);
    void reindex(uint64_t stripe, const StripeState& before, const StripeState& after);
    void note_partial_rows(uint64_t stripe, uint64_t before, uint64_t after);
    uint64_t take_of_stripe(uint64_t stripe, uint64_t wanted, std::vector<BlockRange>& out);

    VolumeAddress address_;
    Geometry geometry_;
    uint32_t rows_;  // of a stripe
    uint64_t stripe_blocks_;  // data blocks of a stripe
    uint64_t free_rows_;
    Bitmap used_;
    Bitmap live_;
    RunTree free_stripes_;  // but those that are held
    SummaryBitmap freed_;  // stripes that became free and were not held since
    // Partly used stripes by the floor of log2 of their longest run of free rows.
    std::vector<SummaryBitmap> partial_;
    SummaryBitmap partial_stripes_;  // stripes with partial rows
    uint64_t partial_row_blocks_ = 0;
    uint64_t next_partial_ = 0;  // stripe where take_of_partial_rows() goes on
    std::array<StreamPlace, kStreamCount> places_;
};

}  // namespace cowraid
