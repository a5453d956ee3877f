// SPDX-License-Identifier: MIT
// What a scrub reads outside of block groups: superblocks and block-group maps, which the next superblock
// writes anew where they are wrong, and logs: parts that cannot be read are written with zeros after a
// commit, where nothing counts any more.
#pragma once

#include <cstdint>

#include "fs/maintain/scrub_walk.h"
#include "fs/txn/commit_orders.h"

namespace cowraid {

// Pieces are numbered from 0. Members come and go meanwhile: a number may have no piece any more.
uint32_t head_piece_count(Store& store);
// Of all members, that are read.
uint64_t head_bytes(Store& store);
// The first piece waits for commits, which do not wait for what it reads. No locks held.
void scrub_head(Store& store, CommitOrders& orders, uint32_t number, ScrubMode mode, WorkTurns& turns,
                ScrubReport& report, ScrubWalkCounts& counts);

}  // namespace cowraid
