// SPDX-License-Identifier: MIT
// What the command line asked for.
#pragma once

#include <cstdint>

namespace cowraid::test {

struct RowOptions {
    uint64_t seed = 1;
    uint64_t budget_seconds = 0;  // for random programs; 0: a fixed number of them
};

const RowOptions& row_options();

}  // namespace cowraid::test
