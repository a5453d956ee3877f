// SPDX-License-Identifier: MIT
// Finds tree nodes that lie in given block groups.
#pragma once

#include <set>
#include <vector>

#include "fs/txn/store.h"

namespace cowraid {

// Where a search goes on. Holds nothing: commits may come in between.
struct NodePosition {
    uint32_t tree = 0;  // of the trees of a commit; kTreeCount: all of them were searched
    Key key{};
};

// Searches the trees of `view` from `position` on, until `count` nodes of groups in `groups` are found or
// some thousand nodes were read, and moves the position behind. `keys`: for each tree a key below each node
// found, rising, no duplicates; the root tree, which every commit writes anew, is left out. kCorrupt,
// kTooManyFaults, kIo: a node cannot be read; the position is behind it.
Status find_nodes(Store& store, const View& view, const std::set<VolumeAddress>& groups, uint64_t count,
                  NodePosition& position, std::array<std::vector<Key>, kTreeCount>& keys);

}  // namespace cowraid
