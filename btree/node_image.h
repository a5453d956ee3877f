// SPDX-License-Identifier: MIT
// The bytes of a node as they lie on disk, read in place. Callers have validated the image or built it.
// Items rise by key; payloads lie back to back without gaps, the first item's at the end of the node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/checksum.h"
#include "base/units.h"
#include "format/key.h"
#include "format/node.h"
#include "format/superblock_codec.h"

namespace cowraid {

// What a pointer to the node says of its content. `image`: kNodeBytes.
inline NodeChecksums checksums_of_node(std::span<const std::byte> image)
{
    NodeChecksums checksums;
    for (uint32_t block = 0; block < kNodeBlocks; ++block)
        checksums[block] = checksum_of(image.subspan(size_t{block} * kBlockBytes, kBlockBytes));
    return checksums;
}

// What items and payloads of one node share.
inline constexpr uint32_t kNodeRoomBytes = kNodeBytes - sizeof(DiskNodeHeader);
inline constexpr uint32_t kMaxChildren = kNodeRoomBytes / sizeof(DiskChildItem);

inline const DiskNodeHeader& node_header(const std::byte* image)
{
    return *reinterpret_cast<const DiskNodeHeader*>(image);
}

inline const DiskLeafItem* leaf_items(const std::byte* image)
{
    return reinterpret_cast<const DiskLeafItem*>(image + sizeof(DiskNodeHeader));
}

inline const DiskChildItem* child_items(const std::byte* image)
{
    return reinterpret_cast<const DiskChildItem*>(image + sizeof(DiskNodeHeader));
}

// Key of a DiskLeafItem or a DiskChildItem.
template <typename Item> Key key_of(const Item& item)
{
    return {item.object, item.type, item.offset};
}

inline std::span<const std::byte> leaf_payload(const std::byte* image, uint32_t index)
{
    const DiskLeafItem& item = leaf_items(image)[index];
    return {image + item.data_offset, item.data_bytes};
}

// Where the payloads of the items before `index` begin: the end of the payload of `index`.
inline uint32_t payload_end(const std::byte* image, uint32_t index)
{
    return index == 0 ? kNodeBytes : leaf_items(image)[index - 1].data_offset.get();
}

// Room that `count` items from `first` on take in a leaf.
inline uint32_t leaf_run_bytes(const std::byte* image, uint32_t first, uint32_t count)
{
    const auto item_bytes = static_cast<uint32_t>(count * sizeof(DiskLeafItem));
    return item_bytes + payload_end(image, first) - payload_end(image, first + count);
}

// First index in [first, count) whose key is >= `key`; `count` when none.
template <typename Item>
uint32_t lower_bound_in(const Item* items, uint32_t first, uint32_t count, const Key& key)
{
    uint32_t low = first;
    uint32_t length = count - first;
    while (length > 0) {
        const uint32_t half = length / 2;
        if (key_of(items[low + half]) < key) {
            low += half + 1;
            length -= half + 1;
        } else {
            length = half;
        }
    }
    return low;
}

}  // namespace cowraid
