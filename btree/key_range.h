// SPDX-License-Identifier: MIT
// The keys a subtree may hold by what its parents say. Ranges of siblings are disjoint and every node holds a
// key, so a walk that enters no node outside its range enters no node twice: crafted trees end.
#pragma once

#include "btree/node.h"
#include "btree/node_cache.h"

namespace cowraid {

struct KeyRange {
    Key low = kMinKey;
    Key high = kMaxKey;
    bool high_is_inside = true;  // only at the right edge of a tree, whose last key may be kMaxKey

    [[nodiscard]] bool holds(const Key& key) const
    {
        return key >= low && (key < high || (high_is_inside && key == high));
    }
};

inline bool node_is_inside(const Node& node, const KeyRange& range)
{
    return range.holds(node.key(0)) && range.holds(node.key(node.item_count() - 1));
}

// The range of one child of a node whose own range is `outer`.
inline KeyRange child_range(const Node& parent, uint32_t index, const KeyRange& outer)
{
    if (index + 1 < parent.item_count())
        return {parent.key(index), parent.key(index + 1), false};
    return {parent.key(index), outer.high, outer.high_is_inside};
}

// Reads a node that must keep to `range`. kCorrupt when it does not.
inline Result<Ref<const Node>> read_inside(NodeCache& cache, const BlockRef& ref, uint64_t tree_id, int level,
                                           const KeyRange& range)
{
    CW_ASSIGN(Ref<const Node> node, cache.get(ref, tree_id, level));
    if (!node_is_inside(*node, range))
        return Err::kCorrupt;
    return node;
}

}  // namespace cowraid
