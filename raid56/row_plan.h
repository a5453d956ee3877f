// SPDX-License-Identifier: MIT
// Which blocks a partial write of one row reads first: pure counting.
#pragma once

#include "raid56/array.h"
#include "raid56/stripe_cache.h"

namespace cowraid {

enum class RowMode : uint8_t {
    kModify,  // old data and old parity: parity changes by the difference
    kReconstruct,  // all data the write leaves alone: parity is made anew
    kSolve,  // neither can be had as it is: all there is, and what is missing is solved
};

struct RowSituation {
    uint32_t data_columns = 0;
    uint32_t parity = 0;
    RowBits writes;  // data columns that get new content
    RowBits present;  // content is in the cache
    RowBits away;  // the member is not in service
};

struct RowPlan {
    RowMode mode = RowMode::kReconstruct;
    RowBits reads;  // columns not present that must be read
};

// The mode with fewer reads, as far as `level` leaves a choice; among equals kReconstruct, whose parity does
// not depend on the old one, unless modifying is preferred. kSolve only when the members away leave nothing
// else.
RowPlan plan_row(const RowSituation& row, RmwLevel level);

}  // namespace cowraid
