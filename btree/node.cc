// SPDX-License-Identifier: MIT
#include "btree/node.h"

#include <algorithm>
#include <cstring>

#include "btree/node_image.h"

namespace cowraid {

namespace {

template <size_t kCount> bool all_zero(const uint8_t (&bytes)[kCount])
{
    return std::all_of(std::begin(bytes), std::end(bytes), [](uint8_t byte) { return byte == 0; });
}

bool header_is_valid(const std::byte* image, const BlockRef& ref, const Uuid& volume_uuid, uint64_t tree_id,
                     int level)
{
    const DiskNodeHeader& header = node_header(image);
    return header.magic == kNodeMagic &&
           std::memcmp(header.volume_uuid, volume_uuid.bytes.data(), volume_uuid.bytes.size()) == 0 &&
           header.address == ref.address.value && header.generation == ref.generation.value &&
           header.tree_id == tree_id && header.level <= kNodeMaxLevel && header.reserved == 0 &&
           header.reserved2 == 0 && header.item_count != 0 &&
           (level < 0 || header.level == static_cast<uint32_t>(level));
}

// Payloads must lie back to back from the end of the node, which leaves no way to overlap.
bool leaf_is_valid(const std::byte* image)
{
    const uint32_t count = node_header(image).item_count;
    if (count > kNodeRoomBytes / sizeof(DiskLeafItem))
        return false;
    const DiskLeafItem* items = leaf_items(image);
    const auto items_end = static_cast<uint32_t>(sizeof(DiskNodeHeader) + count * sizeof(DiskLeafItem));
    uint32_t end = kNodeBytes;
    for (uint32_t i = 0; i < count; ++i) {
        const DiskLeafItem& item = items[i];
        if (item.reserved1 != 0 || !all_zero(item.reserved2) || item.data_bytes > kMaxItemBytes)
            return false;
        if (item.data_offset < items_end || uint32_t{item.data_offset} + item.data_bytes != end)
            return false;
        if (i > 0 && key_of(items[i - 1]) >= key_of(item))
            return false;
        end = item.data_offset;
    }
    return true;
}

bool internal_is_valid(const std::byte* image)
{
    const DiskNodeHeader& header = node_header(image);
    const uint32_t count = header.item_count;
    if (count > kMaxChildren)
        return false;
    const DiskChildItem* items = child_items(image);
    for (uint32_t i = 0; i < count; ++i) {
        const DiskChildItem& item = items[i];
        const uint64_t address = item.child.address;
        if (!all_zero(item.reserved) || address == 0 || address % kBlockBytes != 0)
            return false;
        if (address == header.address || item.child.generation > header.generation)
            return false;
        if (i > 0 && key_of(items[i - 1]) >= key_of(item))
            return false;
    }
    return true;
}

}  // namespace

Node::Node(AlignedBuffer content, const BlockRef& ref) : content_(std::move(content)), ref_(ref)
{
    const DiskNodeHeader& header = node_header(content_.data());
    tree_id_ = header.tree_id;
    level_ = header.level;
    item_count_ = header.item_count;
}

Result<Ref<const Node>> Node::parse(AlignedBuffer content, const BlockRef& ref, const Uuid& volume_uuid,
                                    uint64_t tree_id, int level)
{
    if (content.size() != kNodeBytes || !ref.address.valid())
        return Err::kCorrupt;
    const std::byte* image = content.data();
    if (checksums_of_node(content.span()) != ref.checksums)
        return Err::kCorrupt;
    if (!header_is_valid(image, ref, volume_uuid, tree_id, level))
        return Err::kCorrupt;
    if (node_header(image).level == 0 ? !leaf_is_valid(image) : !internal_is_valid(image))
        return Err::kCorrupt;
    return Ref<const Node>(new Node(std::move(content), ref));
}

Key Node::key(uint32_t index) const
{
    CW_ASSERT(index < item_count_);
    return is_leaf() ? key_of(leaf_items(content_.data())[index])
                     : key_of(child_items(content_.data())[index]);
}

std::span<const std::byte> Node::payload(uint32_t index) const
{
    CW_ASSERT(is_leaf() && index < item_count_);
    return leaf_payload(content_.data(), index);
}

BlockRef Node::child(uint32_t index) const
{
    CW_ASSERT(!is_leaf() && index < item_count_);
    return decode(child_items(content_.data())[index].child);
}

uint32_t Node::lower_bound(const Key& key) const
{
    return is_leaf() ? lower_bound_in(leaf_items(content_.data()), 0, item_count_, key)
                     : lower_bound_in(child_items(content_.data()), 0, item_count_, key);
}

uint32_t Node::child_for(const Key& key) const
{
    CW_ASSERT(!is_leaf());
    const uint32_t index = lower_bound_in(child_items(content_.data()), 0, item_count_, key);
    if (index < item_count_ && key_of(child_items(content_.data())[index]) == key)
        return index;
    return index == 0 ? 0 : index - 1;
}

}  // namespace cowraid
