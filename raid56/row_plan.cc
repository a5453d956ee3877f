// SPDX-License-Identifier: MIT
#include "raid56/row_plan.h"

namespace cowraid {

namespace {

RowBits columns_up_to(uint32_t end)
{
    return ~RowBits() >> (RowBits().size() - end);
}

}  // namespace

RowPlan plan_row(const RowSituation& row, RmwLevel level)
{
    const RowBits data = columns_up_to(row.data_columns);
    const RowBits all = columns_up_to(row.data_columns + row.parity);
    // Parity that cannot be written need not be known.
    const RowBits modify = (row.writes | (all & ~data & ~row.away)) & ~row.present;
    const RowBits reconstruct = data & ~row.writes & ~row.present;
    const bool can_modify = (modify & row.away).none();
    const bool can_reconstruct = (reconstruct & row.away).none();
    if (!can_modify && !can_reconstruct)
        return {RowMode::kSolve, all & ~row.present & ~row.away};
    bool choose_modify = can_modify;
    if (can_modify && can_reconstruct) {
        const size_t margin = level == RmwLevel::kPrefer ? 1 : 0;
        choose_modify = level != RmwLevel::kNever && modify.count() < reconstruct.count() + margin;
    }
    return choose_modify ? RowPlan{RowMode::kModify, modify} : RowPlan{RowMode::kReconstruct, reconstruct};
}

}  // namespace cowraid
