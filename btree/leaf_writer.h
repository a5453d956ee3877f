// SPDX-License-Identifier: MIT
// Lays the pieces of a merge out as leaf images, splitting where one leaf does not hold them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "btree/leaf_merge.h"

namespace cowraid {

// How an overflowing node is split.
enum class FillMode : uint8_t {
    kBalanced,  // evenly, with room for what comes between
    kAppend,  // packed: what comes next lies behind the last key
};

// How much of `remaining` the next of several nodes should take, in the unit of `room`.
uint64_t fill_target(uint64_t remaining, uint64_t room, FillMode mode);

// True when a leaf that packs by kAppend takes nothing more of `piece_bytes` on top of `used_bytes`.
bool append_overflows(uint64_t used_bytes, uint64_t piece_bytes);

// Appends one image per leaf to `images`, in key order; none for no pieces. Headers carry the item count, all
// other header fields are zero.
void write_leaves(const LeafMerge& merge, FillMode mode, std::vector<AlignedBuffer>& images);

}  // namespace cowraid
