// SPDX-License-Identifier: MIT
// Crash states of a program on the real write-intent log: every instant with subsets of the unflushed blocks
// of every member, members lost, blocks rotten or unreadable; then the real scan (journal/intent_scan.h), the
// real recovery, the real erasing, each cut short again.
#pragma once

#include <cstdint>
#include <string>

#include "tests/rowlog/log_world.h"

namespace cowraid::test {

struct LogReport {
    uint64_t states = 0;  // distinct, before faults
    uint64_t scans = 0;
    uint64_t checks = 0;  // of one state with one choice of faults, members lost before and after
    uint64_t nested_checks = 0;  // ... after a second power failure
    uint64_t sampled = 0;  // instants with too many subsets to try all
    uint64_t refusals = 0;  // appends to a full log
    uint64_t complaints = 0;  // of the offline check, about rows without rot
    uint64_t losses = 0;
    std::string first_loss, first_complaint;

    void add(const LogReport& other);
};

// `nested`: power fails a second time, inside recovery.
LogReport enumerate_log(const LogRun& run, bool nested);

}  // namespace cowraid::test
