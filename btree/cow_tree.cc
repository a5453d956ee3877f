// SPDX-License-Identifier: MIT
#include "btree/cow_tree.h"

#include "base/assert.h"
#include "btree/cow_tree_impl.h"

namespace cowraid {

CowTree::Impl::Impl(NodeCache& node_cache, const TreeRoot& base_root) : cache(node_cache), base(base_root)
{
    if (base.root.address.valid())
        root = TreeChild{kMinKey, base.root, nullptr};
}

Status CowTree::Impl::apply(TreeUpdates updates)
{
    TreeChildren list;
    if (!root) {
        CW_TRY(fill_empty_tree(updates, list));
        return replace_root(std::move(list), 0, FillMode::kAppend);
    }
    uint32_t level = 0;
    if (root->pending) {
        level = root->pending->level;
    } else {
        CW_ASSIGN(const Ref<const Node> node, cache.get(root->ref, base.tree_id, -1));
        level = node->level();
    }
    TreeChild old_root = std::move(*root);
    CW_TRY(update(std::move(old_root), static_cast<int>(level), KeyRange{}, updates, list));
    return replace_root(std::move(list), level, FillMode::kBalanced);
}

// Puts a root above several nodes, takes roots away that have one child only.
Status CowTree::Impl::replace_root(TreeChildren list, uint32_t level, FillMode mode)
{
    while (list.size() > 1) {
        // Ordinary trees never come near: a crafted one started high up.
        if (++level > kNodeMaxLevel)
            return Err::kCorrupt;
        TreeChildren parents;
        emit_internals(std::move(list), level, mode, 0, parents);
        list = std::move(parents);
    }
    root.reset();
    if (list.empty())
        return {};
    root = std::move(list.front());
    while (root->pending && !root->pending->is_leaf() && root->pending->children.size() == 1) {
        retire(*root);
        TreeChild child = std::move(root->pending->children.front());
        root = std::move(child);
    }
    return {};
}

void CowTree::Impl::retire(const TreeChild& child)
{
    if (!child.pending)
        freed.push_back(child.ref);
    else if (child.pending->address.valid())
        spare_addresses.push_back(child.pending->address);
    else
        --unassigned_count;
}

std::unique_ptr<PendingNode> CowTree::Impl::make_pending(uint32_t level)
{
    auto node = std::make_unique<PendingNode>();
    node->level = level;
    if (spare_addresses.empty()) {
        ++unassigned_count;
    } else {
        node->address = spare_addresses.back();
        spare_addresses.pop_back();
    }
    return node;
}

void CowTree::Impl::collect_unassigned(PendingNode& node, std::vector<std::vector<PendingNode*>>& by_level)
{
    if (by_level.size() <= node.level)
        by_level.resize(node.level + 1);
    for (const TreeChild& child : node.children) {
        if (child.pending)
            collect_unassigned(*child.pending, by_level);
    }
    if (!node.address.valid())
        by_level[node.level].push_back(&node);
}

CowTree::CowTree(NodeCache& cache, const TreeRoot& base) : impl_(std::make_unique<Impl>(cache, base)) { }

CowTree::~CowTree() = default;

Status CowTree::apply(std::span<const TreeUpdate> updates, Combiner* combiner)
{
    CW_ASSERT(impl_->is_usable);
    if (updates.empty())
        return {};
    for (size_t i = 1; i < updates.size(); ++i)
        CW_ASSERT(updates[i - 1].key < updates[i].key);
    impl_->is_usable = false;
    impl_->combiner = combiner;
    CW_TRY(impl_->apply(updates));
    impl_->is_usable = true;
    for (const VolumeAddress address : impl_->spare_addresses)
        impl_->released.push_back(address);
    impl_->spare_addresses.clear();
    return {};
}

bool CowTree::changed() const
{
    if (!impl_->root)
        return impl_->base.root.address.valid();
    return impl_->root->pending != nullptr || impl_->root->ref != impl_->base.root;
}

size_t CowTree::unassigned_count() const
{
    return impl_->unassigned_count;
}

size_t CowTree::assign(std::span<const VolumeAddress> addresses)
{
    CW_ASSERT(impl_->is_usable && addresses.size() >= impl_->unassigned_count);
    if (impl_->unassigned_count == 0)
        return 0;
    std::vector<std::vector<PendingNode*>> by_level;
    impl_->collect_unassigned(*impl_->root->pending, by_level);
    size_t taken = 0;
    for (const std::vector<PendingNode*>& nodes : by_level) {
        for (PendingNode* node : nodes) {
            CW_ASSERT(addresses[taken].valid() && addresses[taken].value % kBlockBytes == 0);
            node->address = addresses[taken++];
        }
    }
    CW_ASSERT(taken == impl_->unassigned_count);
    impl_->unassigned_count = 0;
    return taken;
}

std::vector<BlockRef> CowTree::take_freed()
{
    return std::exchange(impl_->freed, {});
}

std::vector<VolumeAddress> CowTree::take_released()
{
    return std::exchange(impl_->released, {});
}

}  // namespace cowraid
