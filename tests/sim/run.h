// SPDX-License-Identifier: MIT
// One seed: a volume of random shape lives through operations, faults, power cuts, kills and remounts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "format/group_map.h"
#include "fs/volume/commit_mutant.h"
#include "tests/sim/events.h"

namespace cowraid::test {

struct RunOptions {
    uint64_t seed = 1;
    uint64_t operation_count = 2000;  // 100 more follow at the end
    std::optional<ProfileId> data_profile;  // chosen by the seed unless given
    CommitMutant mutant = CommitMutant::kNone;  // a wrong commit protocol, which must be caught
    bool verbose = false;  // prints every step
};

struct RunResult {
    bool ok = true;
    std::string shape;
    std::string violation;
    std::string story;  // the last steps before it
};

RunResult run_seed(const RunOptions& options, EventCounts& events);

}  // namespace cowraid::test
