// SPDX-License-Identifier: MIT
// The careful half of a scrub: one stripe of which something looked wrong. Private to raid56/.
#pragma once

#include <bitset>

#include "raid56/array_state.h"

namespace cowraid {

inline constexpr uint32_t kMaxChunkRows = kMaxChunkBytes / kBlockBytes;
using RowsOfStripe = std::bitset<kMaxChunkRows>;

// What a scrub goes by.
struct ScrubCall {
    ArrayState& state;
    const ArrayGroup& group;
    ScrubMode mode;
    ScrubSink& sink;
    ScrubReport& report;
};

// Locks the stripe, reads the given rows again, examines each and repairs it. No write of the stripe, and no
// other repair, comes between the first look and the last. Adds to the report. Call without locks held.
void scrub_stripe(ScrubCall& call, uint64_t stripe, const RowsOfStripe& rows);

}  // namespace cowraid
