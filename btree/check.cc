// SPDX-License-Identifier: MIT
#include "btree/check.h"

#include <cinttypes>
#include <cstdio>
#include <set>

#include "btree/key_range.h"

namespace cowraid {

namespace {

std::string key_text(const Key& key)
{
    char text[80];
    std::snprintf(text, sizeof text, "(%" PRIu64 " %u %" PRIu64 ")", key.object, unsigned{key.type},
                  key.offset);
    return text;
}

class TreeChecker {
public:
    TreeChecker(NodeCache& cache, const TreeRoot& tree, TreeVisitor& visitor)
        : cache_(cache), tree_id_(tree.tree_id), visitor_(visitor)
    {
    }

    // `level` -1: any. Recursion ends because levels fall by one from at most kNodeMaxLevel.
    void walk(const BlockRef& ref, int level, const KeyRange& range);

private:
    bool visit_once(const BlockRef& ref);
    void check_range(const Node& node, const KeyRange& range);
    void report(const BlockRef& ref, const std::string& text);

    NodeCache& cache_;
    uint64_t tree_id_;
    TreeVisitor& visitor_;
    std::set<uint64_t> visited_;
};

void TreeChecker::report(const BlockRef& ref, const std::string& text)
{
    char where[96];
    std::snprintf(where, sizeof where, "tree %" PRIu64 " node %" PRIu64 " generation %" PRIu64 ": ", tree_id_,
                  ref.address.value, ref.generation.value);
    visitor_.problem(where + text);
}

bool TreeChecker::visit_once(const BlockRef& ref)
{
    const uint64_t address = ref.address.value;
    const auto above = visited_.lower_bound(address);
    if (above != visited_.end() && *above == address) {
        report(ref, "reached twice");
        return false;
    }
    const bool overlaps_above = above != visited_.end() && *above - address < kNodeBytes;
    const bool overlaps_below = above != visited_.begin() && address - *std::prev(above) < kNodeBytes;
    if (overlaps_above || overlaps_below) {
        report(ref, "overlaps another node");
        return false;
    }
    visited_.insert(above, address);
    return true;
}

void TreeChecker::check_range(const Node& node, const KeyRange& range)
{
    const Key first = node.key(0);
    const Key last = node.key(node.item_count() - 1);
    if (!range.holds(first))
        report(node.block_ref(), "first key " + key_text(first) +
                                     " is outside its parent's range, which starts at " +
                                     key_text(range.low));
    if (!range.holds(last))
        report(node.block_ref(), "last key " + key_text(last) +
                                     " is outside its parent's range, which ends at " + key_text(range.high));
}

void TreeChecker::walk(const BlockRef& ref, int level, const KeyRange& range)
{
    if (!visit_once(ref))
        return;
    Result<Ref<const Node>> read = cache_.get(ref, tree_id_, level);
    if (!read.ok()) {
        report(ref, std::string("cannot be read: ") + err_text(read.err()));
        return;
    }
    const Node& node = **read;
    check_range(node, range);
    visitor_.node(node);
    for (uint32_t i = 0; i < node.item_count(); ++i) {
        if (node.is_leaf())
            visitor_.item(node.key(i), node.payload(i));
        else
            walk(node.child(i), static_cast<int>(node.level()) - 1, child_range(node, i, range));
    }
}

}  // namespace

Status check_tree(NodeCache& cache, const TreeRoot& tree, TreeVisitor& visitor)
{
    if (!tree.root.address.valid())
        return {};
    TreeChecker(cache, tree, visitor).walk(tree.root, -1, KeyRange{});
    return {};
}

}  // namespace cowraid
