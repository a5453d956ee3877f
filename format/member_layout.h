// SPDX-License-Identifier: MIT
// Where the fixed zones of a member lie. plan_member_layout() is declared with the record it fills, in
// format/superblock_codec.h.
#pragma once

#include "format/superblock_codec.h"

namespace cowraid {

// Whether the layout fields of a record read from disk are safe to use: every zone (superblock rings, map
// places, logs, slots) block-aligned, inside the member, disjoint from the others; slot size a power of two
// within bounds; no zone larger and no more slots than mkfs would have made of a member that has grown since,
// so that reading what is there takes a bounded time.
bool member_layout_valid(const MemberRecord& record);

// The largest column that a group has on members the largest of which holds `slots_bytes` in all its slots.
uint64_t max_column_bytes(uint64_t slots_bytes);

// Blocks of all members together, used or not: no count of a volume's blocks is larger.
uint64_t raw_blocks(std::span<const MemberRecord> members);

}  // namespace cowraid
