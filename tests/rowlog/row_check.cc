// SPDX-License-Identifier: MIT
#include "tests/rowlog/row_check.h"

#include <bit>

#include "base/assert.h"

namespace cowraid::test {

void RowCheck::want(uint32_t row, Mask acknowledged)
{
    const Mask all = (1u << world_.run.data_columns) - 1;
    acknowledged_[row] = acknowledged;
    wanted_[row] = (~world_.touched[row] | acknowledged) & all;
}

CodeRow RowCheck::load(const State& state, uint32_t row) const
{
    CodeRow code{world_.run.data_columns, world_.run.parity, kContentBytes, {}, {}};
    for (uint32_t column = 0; column < world_.members(); ++column)
        code.columns[column] = world_.value(state[world_.row_place(row, column)]).content.bytes;
    for (uint32_t column = 0; column < world_.run.data_columns; ++column) {
        const bool is_new = (acknowledged_[row] >> column & 1) != 0;
        if ((wanted_[row] >> column & 1) != 0)
            code.wanted[column] =
                world_.value((is_new ? world_.target : world_.first)[row][column]).content.bytes;
    }
    return code;
}

Mask RowCheck::columns_of(uint32_t row, Mask members) const
{
    Mask columns = 0;
    for (uint32_t column = 0; column < world_.members(); ++column)
        columns |= (members >> world_.member_of(row, column) & 1) << column;
    return columns;
}

RowVerdict RowCheck::verify(const State& state, Mask missing, uint32_t losses_left, bool slow) const
{
    RowVerdict verdict;
    std::array<CodeRow, kMaxRows> rows;
    bool closed = true;
    for (uint32_t row = 0; row < world_.run.rows; ++row) {
        rows[row] = load(state, row);
        closed = closed && is_code_word(rows[row], columns_of(row, missing));
    }
    verdict.slow = slow || !closed;
    for (const Mask lost : losses_) {
        if ((lost & missing) != 0 || static_cast<uint32_t>(std::popcount(lost)) > losses_left)
            continue;
        ++verdict.checks;
        bool lost_any = false;
        for (uint32_t row = 0; row < world_.run.rows && verdict.slow; ++row)
            lost_any = lost_any || !all_readable(rows[row], columns_of(row, lost | missing), losses_);
        CW_ASSERT(!closed || !lost_any);
        verdict.losses += lost_any ? 1 : 0;
        if (lost_any && verdict.loss.empty())
            verdict.loss = ", lost after " + std::to_string(lost);
    }
    return verdict;
}

}  // namespace cowraid::test
