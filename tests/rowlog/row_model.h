// SPDX-License-Identifier: MIT
// Every crash state of a short program of partial writes: cut at every point with every subset of unflushed
// blocks, blocks and log blocks rotten, members lost before and after recovery, power failing again inside
// recovery; together never more faults than the parity tolerates.
#pragma once

#include <cstdint>
#include <string>

#include "tests/rowlog/row_world.h"

namespace cowraid::test {

struct RowReport {
    uint64_t states = 0;  // distinct crash states
    // Of one crash state with one choice of faults and of members lost before and after. States that differ
    // in what nobody reads, members lost before recovery, count once.
    uint64_t checks = 0;
    uint64_t rot_checks = 0;  // ... that have a rotten block of a row
    uint64_t log_checks = 0;  // ... that have an unreadable log, or a block of one
    uint64_t nested_states = 0;  // states that a power failure inside recovery left
    uint64_t nested_checks = 0;
    uint64_t slow_checks = 0;  // checks that tried every reconstruction, not only that the code word is right
    uint64_t last_resorts = 0;  // rows for which checksums alone were not enough (RowCheck)
    uint64_t sampled = 0;  // crash points with too many subsets to try all
    uint64_t complaints = 0;  // of the offline check, about rows without rot
    uint64_t losses = 0;
    std::string first_loss, first_complaint;

    void add(const RowReport& other);
};

RowReport enumerate_row(const RowRun& run);

}  // namespace cowraid::test
