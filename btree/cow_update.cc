// SPDX-License-Identifier: MIT
#include "base/assert.h"
#include "btree/cow_tree_impl.h"

namespace cowraid {

namespace {

// True when all updates stand behind the items the leaf had: its pieces are the old items, then new ones.
bool is_append(const LeafMerge& merge, const std::byte* image)
{
    const LeafPiece& first = merge.pieces.front();
    return merge.pieces.size() > 1 && first.image == image && first.count == node_header(image).item_count;
}

}  // namespace

Result<bool> CowTree::Impl::update(TreeChild child, int level, const KeyRange& range, TreeUpdates updates,
                                   TreeChildren& out)
{
    if (child.pending) {
        if (child.pending->is_leaf())
            return update_leaf(child, child.pending->image.data(), updates, out);
        return update_internal(child, child.pending->level, std::move(child.pending->children), range,
                               updates, out);
    }
    CW_ASSIGN(Ref<const Node> node, read_inside(cache, child.ref, base.tree_id, level, range));
    if (node->is_leaf())
        return update_leaf(child, node->content().data(), updates, out);
    TreeChildren children;
    append_children(*node, children);
    node.reset();
    return update_internal(child, static_cast<uint32_t>(level), std::move(children), range, updates, out);
}

Result<bool> CowTree::Impl::update_leaf(TreeChild& child, const std::byte* image, TreeUpdates updates,
                                        TreeChildren& out)
{
    merge.clear();
    CW_TRY(merge_leaf(image, updates, combiner, merge));
    if (!merge.changed) {
        out.push_back(std::move(child));
        return false;
    }
    const uint64_t old_bytes = leaf_used_bytes(image);
    FillMode mode = FillMode::kBalanced;
    if (!merge.pieces.empty() && is_append(merge, image)) {
        mode = FillMode::kAppend;
        if (append_overflows(old_bytes, merge.pieces[1].bytes())) {
            // The full leaf stays as it is; a committed one need not even be copied.
            out.push_back(std::move(child));
            merge.pieces.erase(merge.pieces.begin());
            merge.bytes -= old_bytes;
            emit_leaves(mode, 0, out);
            return true;
        }
    }
    retire(child);
    const size_t before = out.size();
    emit_leaves(mode, old_bytes, out);
    if (mode == FillMode::kBalanced && out.size() == before + 2)
        out[before].pending->wants_share = true;
    return true;
}

Status CowTree::Impl::fill_empty_tree(TreeUpdates updates, TreeChildren& out)
{
    merge.clear();
    CW_TRY(merge_leaf(nullptr, updates, combiner, merge));
    emit_leaves(FillMode::kAppend, 0, out);
    return {};
}

Result<bool> CowTree::Impl::update_internal(TreeChild& child, uint32_t level, TreeChildren children,
                                            const KeyRange& range, TreeUpdates updates, TreeChildren& out)
{
    const size_t old_count = children.size();
    const bool at_end = updates.front().key >= children.back().key;
    TreeChildren list;
    list.reserve(old_count + 8);
    CW_ASSIGN(const bool changed,
              update_children(children, static_cast<int>(level) - 1, range, updates, list));
    if (!changed) {
        if (child.pending)
            child.pending->children = std::move(list);
        out.push_back(std::move(child));
        return false;
    }
    CW_TRY(rebalance(list, level - 1, range));
    retire(child);
    emit_internals(std::move(list), level, at_end ? FillMode::kAppend : FillMode::kBalanced, old_count, out);
    return true;
}

// Hands every child the updates below the next child's key; the first also gets what lies before its own.
Result<bool> CowTree::Impl::update_children(TreeChildren& children, int level, const KeyRange& range,
                                            TreeUpdates updates, TreeChildren& out)
{
    bool changed = false;
    for (size_t i = 0; i < children.size(); ++i) {
        KeyRange inner{children[i].key, range.high, range.high_is_inside};
        size_t count = updates.size();
        if (i + 1 < children.size()) {
            inner.high = children[i + 1].key;
            inner.high_is_inside = false;
            count = 0;
            while (count < updates.size() && updates[count].key < inner.high)
                ++count;
        }
        if (count == 0) {
            out.push_back(std::move(children[i]));
            continue;
        }
        CW_ASSIGN(const bool child_changed,
                  update(std::move(children[i]), level, inner, updates.first(count), out));
        changed |= child_changed;
        updates = updates.subspan(count);
    }
    return changed;
}

void CowTree::Impl::emit_leaves(FillMode mode, uint64_t old_bytes, TreeChildren& out)
{
    images.clear();
    write_leaves(merge, mode, images);
    const bool wants_merge = merge.bytes < old_bytes && merge.bytes < kNodeRoomBytes / 4;
    for (AlignedBuffer& image : images) {
        std::unique_ptr<PendingNode> leaf = make_pending(0);
        leaf->wants_merge = wants_merge;
        leaf->image = std::move(image);
        const Key key = key_of(leaf_items(leaf->image.data())[0]);
        out.push_back({key, {}, std::move(leaf)});
    }
}

void CowTree::Impl::emit_internals(TreeChildren children, uint32_t level, FillMode mode, size_t old_count,
                                   TreeChildren& out)
{
    const bool wants_merge = children.size() < old_count && children.size() < kMaxChildren / 4;
    size_t done = 0;
    while (done < children.size()) {
        const size_t remaining = children.size() - done;
        const size_t count = std::min<size_t>(remaining, fill_target(remaining, kMaxChildren, mode));
        std::unique_ptr<PendingNode> node = make_pending(level);
        node->wants_merge = wants_merge;
        if (count == children.size()) {
            node->children = std::move(children);
            done = count;
            out.push_back({node->first_child_key(), {}, std::move(node)});
            return;
        }
        node->children.reserve(count);
        for (size_t i = 0; i < count; ++i)
            node->children.push_back(std::move(children[done + i]));
        done += count;
        const Key key = node->first_child_key();
        out.push_back({key, {}, std::move(node)});
    }
}

}  // namespace cowraid
