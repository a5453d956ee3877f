// SPDX-License-Identifier: MIT
// From single bad blocks to lines of a report.
#pragma once

#include <vector>

#include "fs/check/check_passes.h"

namespace cowraid {

struct ExaminedBlock {
    BadBlock block;
    bool repairable = false;
};

// Reports neighbouring blocks of a member as one finding. Blocks of members that are not there are no
// findings of their own: the member is one. `content`: what the blocks are, for messages; `data_kind`: the
// kind of a finding about blocks that are not parity.
void report_bad_blocks(CheckContext& context, const char* data_kind, const char* content,
                       std::vector<ExaminedBlock> blocks);

}  // namespace cowraid
