// SPDX-License-Identifier: MIT
#include "base/assert.h"
#include "btree/cow_tree_impl.h"

namespace cowraid {

namespace {

// Three leaves become two when these are at most nine tenths full then.
constexpr uint64_t kShareLimitBytes = 2 * uint64_t{kNodeRoomBytes} * 9 / 10;

bool wants_merge(const TreeChild& child)
{
    return child.pending && child.pending->wants_merge;
}

bool wants_share(const TreeChild& child)
{
    return child.pending && child.pending->wants_share;
}

// The range of one of several siblings.
KeyRange sibling_range(const TreeChildren& siblings, size_t index, const KeyRange& range)
{
    if (index + 1 < siblings.size())
        return {siblings[index].key, siblings[index + 1].key, false};
    return {siblings[index].key, range.high, range.high_is_inside};
}

// Where a run of siblings starts after it took in a neighbour: a pending one, which costs no read and no
// further copy, else the left one. There must be a neighbour.
size_t start_with_neighbour(const TreeChildren& siblings, size_t first, size_t count)
{
    const bool has_left = first > 0;
    const bool has_right = first + count < siblings.size();
    CW_ASSERT(has_left || has_right);
    if (has_left && (siblings[first - 1].pending || !has_right || !siblings[first + count].pending))
        return first - 1;
    return first;
}

}  // namespace

Status CowTree::Impl::rebalance(TreeChildren& siblings, uint32_t level, const KeyRange& range)
{
    size_t i = 0;
    while (i < siblings.size() && siblings.size() > 1) {
        if (wants_merge(siblings[i])) {
            const size_t start = start_with_neighbour(siblings, i, 1);
            if (!can_read(siblings, start, 2, level, range)) {
                siblings[i].pending->wants_merge = false;
                continue;
            }
            // One sibling fewer, or two that no longer want to merge: the loop ends.
            CW_TRY(join(siblings, start, 2, level, range));
            i = start;
        } else if (wants_share(siblings[i])) {
            siblings[i].pending->wants_share = false;
            if (siblings.size() > 2 && i + 1 < siblings.size())
                CW_TRY(share(siblings, i, range));
            ++i;
        } else {
            ++i;
        }
    }
    return {};
}

// Small nodes are no fault: an unreadable neighbour must not stop changes that do not need it.
bool CowTree::Impl::can_read(const TreeChildren& siblings, size_t first, size_t count, uint32_t level,
                             const KeyRange& range)
{
    for (size_t i = first; i < first + count; ++i) {
        const TreeChild& child = siblings[i];
        if (!child.pending && !read_inside(cache, child.ref, base.tree_id, static_cast<int>(level),
                                           sibling_range(siblings, i, range))
                                   .ok())
            return false;
    }
    return true;
}

// A split left two halves at `first`. When a neighbour has room for a part of them, the three become two.
// Without that, leaves filled at the same pace all split at the same time and stay half empty together.
Status CowTree::Impl::share(TreeChildren& siblings, size_t first, const KeyRange& range)
{
    const size_t start = start_with_neighbour(siblings, first, 2);
    if (!can_read(siblings, start, 3, 0, range))
        return {};
    uint64_t bytes = 0;
    for (size_t i = start; i < start + 3; ++i) {
        Ref<const Node> node;
        CW_ASSIGN(const std::byte* image, leaf_image(siblings, i, range, node));
        bytes += leaf_used_bytes(image);
    }
    if (bytes > kShareLimitBytes)
        return {};
    return join(siblings, start, 3, 0, range);
}

Status CowTree::Impl::join(TreeChildren& siblings, size_t first, size_t count, uint32_t level,
                           const KeyRange& range)
{
    CW_ASSERT(count >= 2 && first + count <= siblings.size());
    TreeChildren joined;
    if (level == 0)
        CW_TRY(join_leaves(siblings, first, count, range, joined));
    else
        CW_TRY(join_internals(siblings, first, count, level, range, joined));
    CW_ASSERT(!joined.empty() && joined.size() <= count);
    for (TreeChild& child : joined)
        child.pending->wants_merge &= joined.size() == 1;
    const auto begin = siblings.begin() + static_cast<ptrdiff_t>(first);
    const auto end = std::move(joined.begin(), joined.end(), begin);
    siblings.erase(end, begin + static_cast<ptrdiff_t>(count));
    return {};
}

// The image of one of several leaves. `node` keeps a committed one alive.
Result<const std::byte*> CowTree::Impl::leaf_image(const TreeChildren& siblings, size_t index,
                                                   const KeyRange& range, Ref<const Node>& node)
{
    const TreeChild& child = siblings[index];
    if (child.pending)
        return std::as_const(*child.pending).image.data();
    CW_ASSIGN(node, read_inside(cache, child.ref, base.tree_id, 0, sibling_range(siblings, index, range)));
    return node->content().data();
}

Status CowTree::Impl::join_leaves(TreeChildren& siblings, size_t first, size_t count, const KeyRange& range,
                                  TreeChildren& out)
{
    std::vector<Ref<const Node>> nodes(count);
    merge.clear();
    for (size_t i = 0; i < count; ++i) {
        CW_ASSIGN(const std::byte* image, leaf_image(siblings, first + i, range, nodes[i]));
        merge.add_run(image, 0, node_header(image).item_count);
    }
    for (size_t i = 0; i < count; ++i)
        retire(siblings[first + i]);
    emit_leaves(FillMode::kBalanced, UINT64_MAX, out);
    return {};
}

Status CowTree::Impl::join_internals(TreeChildren& siblings, size_t first, size_t count, uint32_t level,
                                     const KeyRange& range, TreeChildren& out)
{
    KeyRange whole = sibling_range(siblings, first + count - 1, range);
    whole.low = siblings[first].key;
    TreeChildren children;
    for (size_t i = first; i < first + count; ++i) {
        TreeChild& child = siblings[i];
        if (child.pending) {
            for (TreeChild& inner : child.pending->children)
                children.push_back(std::move(inner));
            continue;
        }
        CW_ASSIGN(const Ref<const Node> node,
                  read_inside(cache, child.ref, base.tree_id, static_cast<int>(level),
                              sibling_range(siblings, i, range)));
        append_children(*node, children);
    }
    // An only child could not merge before; now it has neighbours.
    CW_TRY(rebalance(children, level - 1, whole));
    for (size_t i = first; i < first + count; ++i)
        retire(siblings[i]);
    emit_internals(std::move(children), level, FillMode::kBalanced, SIZE_MAX, out);
    return {};
}

}  // namespace cowraid
