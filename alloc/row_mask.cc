// SPDX-License-Identifier: MIT
#include "alloc/row_mask.h"

#include <algorithm>

namespace cowraid {

Bits256 used_rows(const Bitmap& used, const Geometry& geometry, uint64_t stripe)
{
    Bits256 mask;
    const uint32_t rows = geometry.rows();
    uint64_t block = stripe * geometry.stripe_data_blocks();
    for (uint32_t column = 0; column < geometry.data_columns; ++column) {
        for (uint32_t row = 0; row < rows; row += 64) {
            const uint32_t part = std::min(64u, rows - row);
            mask.words[row / 64] |= used.bits(block, part);
            block += part;
        }
    }
    return mask;
}

StripeState stripe_state(const Bitmap& used, const Geometry& geometry, uint64_t stripe)
{
    const uint32_t rows = geometry.rows();
    const uint64_t blocks = geometry.stripe_data_blocks();
    if (used.none(stripe * blocks, blocks))
        return {rows, rows, 0};
    const Bits256 mask = used_rows(used, geometry, stripe);
    StripeState state;
    for (uint32_t row = mask.next_clear(0, rows); row < rows;) {
        const uint32_t end = mask.next_set(row, rows);
        state.free_rows += end - row;
        state.longest_run = std::max(state.longest_run, end - row);
        row = mask.next_clear(end, rows);
    }
    const uint64_t taken = uint64_t{rows - state.free_rows} * geometry.data_columns;
    state.partial_row_blocks = static_cast<uint32_t>(taken - used.count(stripe * blocks, blocks));
    return state;
}

RowRun best_free_run(const Bits256& used, uint32_t rows, uint32_t wanted, uint32_t unit)
{
    RowRun best;
    for (uint32_t row = used.next_clear(0, rows); row < rows;) {
        const uint32_t end = used.next_set(row, rows);
        const uint32_t count = (end - row) / unit * unit;
        const bool fits = count >= wanted;
        const bool best_fits = best.count >= wanted;
        if (count > 0 &&
            (best.count == 0 || (fits ? !best_fits || count < best.count : !best_fits && count > best.count)))
            best = {row, count};
        row = used.next_clear(end, rows);
    }
    return best;
}

}  // namespace cowraid
