// SPDX-License-Identifier: MIT
// Solving lost blocks of a parity group from the rows they are in.
#pragma once

#include <span>
#include <vector>

#include "raid56/lost_block.h"
#include "raid56/repair.h"
#include "raid56/row_set.h"

namespace cowraid {

// One row with lost blocks: k + m cells by logical column.
struct Row {
    const ArrayGroup* group = nullptr;
    uint64_t stripe = 0;
    uint32_t row = 0;
    std::span<RowCell> cells;
    std::span<LostBlock> lost;
    bool done = false;  // solved, or beyond hope

    [[nodiscard]] uint32_t data_columns() const { return group->geometry.data_columns; }
    [[nodiscard]] BlockPlace place(uint32_t column) const { return {stripe, column, row}; }
    // Cells that may serve as input: good or unknown.
    [[nodiscard]] uint32_t usable_count() const;
    // Cells that were read and are not what they must be, those of lost blocks left out.
    [[nodiscard]] uint32_t mismatching_count() const;
};

// Tries to solve the row's lost blocks from its usable cells: every choice of k of them, those of unknown
// content left out first, until each lost block matches its checksum. When all of the row has been read and
// that was not enough, cells that mismatch are inputs, too: what is recorded of free blocks and of parity may
// be older than what they hold, and the lost block's own checksum decides. At most k + 1 choices, since a
// block is lost. Then also solves bad siblings and adds what is to be rewritten to `repairs` (their content
// stays in the cells' and the reader's memory). Sets row.done when nothing is lost any more.
void solve_row(Row& row, std::vector<RepairItem>& repairs);

}  // namespace cowraid
