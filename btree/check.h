// SPDX-License-Identifier: MIT
// Walks a whole tree and reports what is wrong with its structure.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "btree/tree.h"

namespace cowraid {

class TreeVisitor {
public:
    virtual ~TreeVisitor() = default;
    virtual void node(const Node& node) = 0;
    virtual void item(const Key& key, std::span<const std::byte> payload) = 0;
    // One line per finding; the walk goes on where it can.
    virtual void problem(const std::string& text) = 0;
};

// Checks that keys rise across the whole tree, children lie inside their parents' key ranges, levels fall
// by one, no node is reached twice or overlaps another, child generations do not exceed their parents'.
// Depth is bounded and no node is entered twice, so a crafted tree cannot loop. Every node read is also
// verified by the cache. What is wrong with the tree, unreadable nodes included, goes to the visitor and is
// no error of the walk.
Status check_tree(NodeCache& cache, const TreeRoot& tree, TreeVisitor& visitor);

}  // namespace cowraid
