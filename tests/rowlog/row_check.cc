// SPDX-License-Identifier: MIT
#include "tests/rowlog/row_check.h"

#include <bit>

#include "base/assert.h"
#include "base/checksum.h"

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

// Columns that do not hold what is recorded of them.
Mask RowCheck::unrecorded(const State& state, const Recorded& recorded, uint32_t row) const
{
    Mask columns = 0;
    for (uint32_t column = 0; column < world_.members(); ++column) {
        const Checksum expected = world_.value(recorded[row][column]).checksum;
        const Checksum seen = world_.value(state[world_.row_place(row, column)]).checksum;
        columns |= (expected != seen ? 1u : 0u) << column;
    }
    return columns;
}

// is_code_word(), which most states of a program ask about the same few rows.
bool RowCheck::closes(const State& state, uint32_t row, Mask away, const CodeRow& code)
{
    std::array<uint32_t, kMaxColumns + 4> asked{row, away, wanted_[row], acknowledged_[row]};
    for (uint32_t column = 0; column < world_.members(); ++column)
        asked[4 + column] = (away >> column & 1) != 0 ? 0 : state[world_.row_place(row, column)];
    const auto [known, added] = closed_.try_emplace(seeded_hash(asked.data(), sizeof asked, 0));
    if (added)
        known->second = is_code_word(code, away);
    return known->second;
}

RowVerdict RowCheck::verify(const State& state, const Recorded& recorded, Mask missing, uint32_t losses_left,
                            const How& how)
{
    RowVerdict verdict;
    std::array<CodeRow, kMaxRows> rows;
    std::array<Mask, kMaxRows> bad{};
    bool closed = true;
    for (uint32_t row = 0; row < world_.run.rows; ++row) {
        const Mask away = columns_of(row, missing);
        const Mask parity = ((1u << world_.run.parity) - 1) << world_.run.data_columns;
        rows[row] = load(state, row);
        bad[row] = unrecorded(state, recorded, row) & ~away;
        closed = closed && bad[row] == 0 && closes(state, row, away, rows[row]);
        const Mask checked = (away & parity) == parity ? wanted_[row] : ~Mask{0};
        verdict.complaints += how.untouched && (bad[row] & checked) != 0 ? 1 : 0;
    }
    verdict.slow = how.slow || !closed;
    for (const Mask lost : losses_) {
        if ((lost & missing) != 0 || static_cast<uint32_t>(std::popcount(lost)) > losses_left)
            continue;
        ++verdict.checks;
        bool lost_any = false;
        for (uint32_t row = 0; row < world_.run.rows && verdict.slow && !lost_any; ++row) {
            const Mask away = columns_of(row, lost | missing);
            if (all_readable(rows[row], away | bad[row], losses_))
                continue;
            lost_any = !how.last_resort || !all_readable(rows[row], away, losses_);
            verdict.last_resorts += lost_any ? 0 : 1;
        }
        CW_ASSERT(!closed || !lost_any);
        verdict.losses += lost_any ? 1 : 0;
        if (lost_any && verdict.loss.empty())
            verdict.loss = ", lost after " + std::to_string(lost);
    }
    return verdict;
}

}  // namespace cowraid::test
