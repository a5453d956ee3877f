// SPDX-License-Identifier: MIT
// The inside of CowTree, shared by its source files:
//   cow_tree.cc       the public functions, growing and shrinking at the root
//   cow_update.cc     a batch on its way down, replacements on their way up
//   cow_rebalance.cc  small nodes joining their neighbours
//   cow_seal.cc       pending nodes become committed ones
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "btree/cow_tree.h"
#include "btree/key_range.h"
#include "btree/leaf_merge.h"
#include "btree/leaf_writer.h"
#include "btree/pending.h"

namespace cowraid {

using TreeChildren = std::vector<TreeChild>;
using TreeUpdates = std::span<const TreeUpdate>;

// Adds the children of a committed internal node.
inline void append_children(const Node& node, TreeChildren& out)
{
    out.reserve(out.size() + node.item_count());
    for (uint32_t i = 0; i < node.item_count(); ++i)
        out.push_back({node.key(i), node.child(i), nullptr});
}

struct CowTree::Impl {
    Impl(NodeCache& node_cache, const TreeRoot& base_root);

    // One batch, merged into the subtree below `child`, all of whose keys lie in `range`. Appends what
    // replaces the child to `out`: itself when nothing changed (then false), nothing when it became empty.
    Result<bool> update(TreeChild child, int level, const KeyRange& range, TreeUpdates updates,
                        TreeChildren& out);
    Result<bool> update_leaf(TreeChild& child, const std::byte* image, TreeUpdates updates,
                             TreeChildren& out);
    Result<bool> update_internal(TreeChild& child, uint32_t level, TreeChildren children,
                                 const KeyRange& range, TreeUpdates updates, TreeChildren& out);
    Result<bool> update_children(TreeChildren& children, int level, const KeyRange& range,
                                 TreeUpdates updates, TreeChildren& out);
    Status fill_empty_tree(TreeUpdates updates, TreeChildren& out);

    // Joins nodes of a list of siblings that became small with their neighbours. `range` is the list's.
    Status rebalance(TreeChildren& siblings, uint32_t level, const KeyRange& range);
    bool can_read(const TreeChildren& siblings, size_t first, size_t count, uint32_t level,
                  const KeyRange& range);
    Status share(TreeChildren& siblings, size_t first, const KeyRange& range);
    // Replaces `count` siblings by as few nodes as hold their content.
    Status join(TreeChildren& siblings, size_t first, size_t count, uint32_t level, const KeyRange& range);
    Status join_leaves(TreeChildren& siblings, size_t first, size_t count, const KeyRange& range,
                       TreeChildren& out);
    Status join_internals(TreeChildren& siblings, size_t first, size_t count, uint32_t level,
                          const KeyRange& range, TreeChildren& out);
    Result<const std::byte*> leaf_image(const TreeChildren& siblings, size_t index, const KeyRange& range,
                                        Ref<const Node>& node);

    // Takes a node out of the tree. Its memory stays until the caller drops it.
    void retire(const TreeChild& child);
    std::unique_ptr<PendingNode> make_pending(uint32_t level);
    // Turn a list of items or children into nodes, appended to `out`. `old_*` is the size of what they
    // replace: only nodes that shrank ask for a merge.
    void emit_leaves(FillMode mode, uint64_t old_bytes, TreeChildren& out);
    void emit_internals(TreeChildren children, uint32_t level, FillMode mode, size_t old_count,
                        TreeChildren& out);

    Status apply(TreeUpdates updates);
    Status replace_root(TreeChildren list, uint32_t level, FillMode mode);
    // Unassigned nodes by level, each in key order.
    void collect_unassigned(PendingNode& node, std::vector<std::vector<PendingNode*>>& by_level);
    Result<BlockRef> seal_node(PendingNode& node, Generation generation, const Uuid& volume_uuid,
                               std::vector<Ref<const Node>>& nodes);

    NodeCache& cache;
    const TreeRoot base;
    std::optional<TreeChild> root;  // none: the tree is empty
    bool is_usable = true;  // false after an error and after seal()
    Combiner* combiner = nullptr;  // of the running apply()

    size_t unassigned_count = 0;
    std::vector<VolumeAddress> spare_addresses;  // of nodes retired by the running apply(), for new ones
    std::vector<BlockRef> freed;
    std::vector<VolumeAddress> released;

    // Scratch of one leaf at a time, kept for its memory.
    LeafMerge merge;
    std::vector<AlignedBuffer> images;
};

}  // namespace cowraid
