// SPDX-License-Identifier: MIT
#include <cstring>

#include "base/assert.h"
#include "btree/cow_tree_impl.h"

namespace cowraid {

namespace {

AlignedBuffer internal_image(const TreeChildren& children)
{
    CW_ASSERT(children.size() <= kMaxChildren);
    AlignedBuffer image = AlignedBuffer::zeroed(kNodeBytes);
    std::byte* out = image.data() + sizeof(DiskNodeHeader);
    for (const TreeChild& child : children) {
        const DiskChildItem item{.object = child.key.object,
                                 .offset = child.key.offset,
                                 .type = child.key.type,
                                 .reserved = {},
                                 .child = encode(child.ref)};
        std::memcpy(out, &item, sizeof item);
        out += sizeof item;
    }
    return image;
}

}  // namespace

Result<BlockRef> CowTree::Impl::seal_node(PendingNode& node, Generation generation, const Uuid& volume_uuid,
                                          std::vector<Ref<const Node>>& nodes)
{
    for (TreeChild& child : node.children) {
        if (!child.pending) {
            // The address was free. A committed pointer to it, into a part of the tree that nobody read, is
            // damage.
            if (child.ref.address == node.address)
                return Err::kCorrupt;
            continue;
        }
        CW_ASSIGN(child.ref, seal_node(*child.pending, generation, volume_uuid, nodes));
        child.pending.reset();
    }
    AlignedBuffer image = node.is_leaf() ? std::move(node.image) : internal_image(node.children);
    DiskNodeHeader header{};
    header.magic = kNodeMagic;
    std::memcpy(header.volume_uuid, volume_uuid.bytes.data(), volume_uuid.bytes.size());
    header.address = node.address.value;
    header.generation = generation.value;
    header.tree_id = base.tree_id;
    header.level = static_cast<uint16_t>(node.level);
    header.item_count = node.is_leaf() ? node_header(image.data()).item_count.get()
                                       : static_cast<uint32_t>(node.children.size());
    std::memcpy(image.data(), &header, sizeof header);

    // No node is written that a reader would refuse.
    const BlockRef ref{node.address, generation, checksums_of_node(image.span())};
    Result<Ref<const Node>> sealed =
        Node::parse(std::move(image), ref, volume_uuid, base.tree_id, static_cast<int>(node.level));
    CW_ASSERT(sealed.ok());
    nodes.push_back(sealed.take());
    return ref;
}

Result<TreeRoot> CowTree::seal(Generation generation, const Uuid& volume_uuid,
                               std::vector<Ref<const Node>>& nodes)
{
    CW_ASSERT(impl_->is_usable && impl_->unassigned_count == 0);
    CW_ASSERT(!changed() || generation > impl_->base.root.generation);
    impl_->is_usable = false;
    if (!impl_->root)
        return TreeRoot{impl_->base.tree_id, {}};
    if (impl_->root->pending) {
        CW_ASSIGN(impl_->root->ref, impl_->seal_node(*impl_->root->pending, generation, volume_uuid, nodes));
        impl_->root->pending.reset();
    }
    return TreeRoot{impl_->base.tree_id, impl_->root->ref};
}

}  // namespace cowraid
