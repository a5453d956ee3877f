// SPDX-License-Identifier: MIT
// Which rows of one stripe hold a used block, and the runs of rows between them.
#pragma once

#include <cstdint>

#include "alloc/bitmap.h"
#include "raid56/geometry.h"

namespace cowraid {

static_assert(kMaxChunkBytes / kBlockBytes <= Bits256::kBits, "a row mask holds the rows of any chunk");

struct RowRun {
    uint32_t first = 0;
    uint32_t count = 0;
};

// What the free-space index needs to know of one stripe.
struct StripeState {
    uint32_t free_rows = 0;
    uint32_t longest_run = 0;  // of free rows
    uint32_t partial_row_blocks = 0;  // blocks in the other rows that are not used
};

// Bit i is set when any data column of row i is set in `used`, which covers the group's blocks by address.
Bits256 used_rows(const Bitmap& used, const Geometry& geometry, uint64_t stripe);

StripeState stripe_state(const Bitmap& used, const Geometry& geometry, uint64_t stripe);

// The shortest run of free rows with at least `wanted` of them, else the longest; rounded down to a multiple
// of `unit`. Count 0: no run has `unit` rows.
RowRun best_free_run(const Bits256& used, uint32_t rows, uint32_t wanted, uint32_t unit);

}  // namespace cowraid
