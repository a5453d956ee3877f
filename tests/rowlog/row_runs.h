// SPDX-License-Identifier: MIT
// The programs that the enumerators of this folder go through, by dimension.
#pragma once

#include <vector>

#include "tests/rowlog/row_world.h"

namespace cowraid::test {

// One row, all members: one- and two-block writes, all sequences of two of them and some of three.
std::vector<RowRun> plain_runs(uint32_t data_columns, uint32_t parity);
// The same with blocks that differ from what was there as rot does: wrong rows may be code words.
std::vector<RowRun> similar_runs(uint32_t data_columns, uint32_t parity);
// Plain, with a flush between the first write and the others.
std::vector<RowRun> flushed_runs(uint32_t data_columns, uint32_t parity);
// Two rows; after some writes the log is full: checksums are committed, which acknowledges nothing.
std::vector<RowRun> full_log_runs(uint32_t data_columns, uint32_t parity);
// Two rows, on members rotated by one, in one append; then some of both, or of one.
std::vector<RowRun> batched_runs(uint32_t data_columns, uint32_t parity);
// Every choice of members away from the start.
std::vector<RowRun> degraded_runs(uint32_t data_columns, uint32_t parity);
// Power fails again inside recovery, `depth` times; small programs of all kinds.
std::vector<RowRun> nested_runs(uint32_t data_columns, uint32_t parity, uint32_t depth);
// Anything of the above, drawn at random.
RowRun random_run(Prng& prng);

}  // namespace cowraid::test
