// SPDX-License-Identifier: MIT
// Which of the unflushed writes survived: all subsets while there are few, a bounded choice otherwise.
#pragma once

#include <cstdint>
#include <vector>

#include "base/random.h"
#include "sim/replay.h"

namespace cowraid::test {

// Per device, the writes that reached it.
using CrashChoice = std::vector<std::vector<ChosenWrite>>;

struct SubsetPlan {
    std::vector<CrashChoice> choices;
    bool exhaustive = false;
};

// All subsets when at most `exhaustive_max` writes are undetermined. Otherwise: none, all, all but one, only
// one, all but a pair (while the number of pairs is bounded), every combination of devices all-or-nothing
// (bounded), and `random_count` seeded subsets, in half of which writes are torn; always one in which every
// write is torn.
SubsetPlan plan_subsets(const ReplayCursor& cursor, size_t device_count, uint32_t exhaustive_max,
                        uint32_t random_count, Prng& prng);

}  // namespace cowraid::test
