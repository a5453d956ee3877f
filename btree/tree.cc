// SPDX-License-Identifier: MIT
#include "btree/tree.h"

#include "btree/key_range.h"

namespace cowraid {

Status tree_lookup(NodeCache& cache, const TreeRoot& tree, const Key& key, std::vector<std::byte>& out)
{
    if (!tree.root.address.valid())
        return Err::kNotFound;
    KeyRange range;
    CW_ASSIGN(Ref<const Node> node, cache.get(tree.root, tree.tree_id, -1));
    while (!node->is_leaf()) {
        const uint32_t index = node->child_for(key);
        range = child_range(*node, index, range);
        const int level = static_cast<int>(node->level()) - 1;
        CW_ASSIGN(Ref<const Node> child, read_inside(cache, node->child(index), tree.tree_id, level, range));
        node = std::move(child);
    }
    const uint32_t index = node->lower_bound(key);
    if (index == node->item_count() || node->key(index) != key)
        return Err::kNotFound;
    const std::span<const std::byte> payload = node->payload(index);
    out.assign(payload.begin(), payload.end());
    return {};
}

// Extends the path from its end to a leaf. A child's level is one below its parent's, so the path is short.
Status TreeCursor::descend(const Key& key, Edge edge)
{
    while (!path_.back().node->is_leaf()) {
        Step& step = path_.back();
        const Node& parent = *step.node;
        const KeyRange range = child_range(parent, step.index, step.range);
        const int level = static_cast<int>(parent.level()) - 1;
        CW_ASSIGN(Ref<const Node> node,
                  read_inside(cache_, parent.child(step.index), tree_.tree_id, level, range));
        uint32_t index = 0;
        if (edge == Edge::kLast)
            index = node->item_count() - 1;
        else if (edge == Edge::kKey)
            index = node->is_leaf() ? node->lower_bound(key) : node->child_for(key);
        path_.push_back({std::move(node), index, range});
    }
    return {};
}

Status TreeCursor::start(const Key& key)
{
    path_.clear();
    if (!tree_.root.address.valid())
        return {};
    CW_ASSIGN(Ref<const Node> root, cache_.get(tree_.root, tree_.tree_id, -1));
    const uint32_t index = root->is_leaf() ? root->lower_bound(key) : root->child_for(key);
    path_.push_back({std::move(root), index, {}});
    return descend(key, Edge::kKey);
}

Status TreeCursor::seek(const Key& key)
{
    return settle(seek_path(key));
}

Status TreeCursor::seek_path(const Key& key)
{
    CW_TRY(start(key));
    if (path_.empty() || path_.back().index < path_.back().node->item_count())
        return {};
    return step_forward();
}

Status TreeCursor::seek_before(const Key& key)
{
    return settle(seek_before_path(key));
}

Status TreeCursor::seek_before_path(const Key& key)
{
    CW_TRY(start(key));
    if (path_.empty())
        return {};
    const Step& leaf = path_.back();
    if (leaf.index < leaf.node->item_count() && leaf.node->key(leaf.index) == key)
        return {};
    return step_back();
}

Status TreeCursor::next()
{
    CW_ASSERT(valid());
    return settle(step_forward());
}

Status TreeCursor::prev()
{
    CW_ASSERT(valid());
    return settle(step_back());
}

Status TreeCursor::step_forward()
{
    while (!path_.empty() && path_.back().index + 1 >= path_.back().node->item_count())
        path_.pop_back();
    if (path_.empty())
        return {};
    ++path_.back().index;
    return descend(kMinKey, Edge::kFirst);
}

Status TreeCursor::step_back()
{
    while (!path_.empty() && path_.back().index == 0)
        path_.pop_back();
    if (path_.empty())
        return {};
    --path_.back().index;
    return descend(kMaxKey, Edge::kLast);
}

// After an error the cursor stands nowhere.
Status TreeCursor::settle(Status status)
{
    if (!status.ok())
        path_.clear();
    return status;
}

Key TreeCursor::key() const
{
    CW_ASSERT(valid());
    return path_.back().node->key(path_.back().index);
}

std::span<const std::byte> TreeCursor::payload() const
{
    CW_ASSERT(valid());
    return path_.back().node->payload(path_.back().index);
}

}  // namespace cowraid
