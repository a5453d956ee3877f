// SPDX-License-Identifier: MIT
// Under parity a node takes only rows that hold nothing, and one that goes leaves a partial row that no node
// can take until its neighbours go as well. When rows run low, commits also move nodes that share their rows
// with few others: these rows come free.
#pragma once

#include <vector>

#include "fs/commit/committer.h"

namespace cowraid {

// How many nodes the next commit moves, with room reserved for them, noted in the open transaction. Commit
// thread, before it closes the transaction.
void plan_node_moves(Store& store);
// A key below each of up to `count` nodes of the file tree that are worth moving; rising, no duplicates. What
// cannot be read is left out. `view`: of the commit under way.
std::vector<Key> find_node_moves(Store& store, const View& view, uint64_t count);

}  // namespace cowraid
