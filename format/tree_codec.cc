// SPDX-License-Identifier: MIT
#include "format/tree_codec.h"

#include <cstring>

#include "format/items.h"

namespace cowraid {

namespace {

template <typename Disk> ItemBytes item_of(const Disk& disk)
{
    ItemBytes bytes(sizeof disk);
    std::memcpy(bytes.data(), &disk, sizeof disk);
    return bytes;
}

template <typename Disk> Result<Disk> whole_item(std::span<const std::byte> payload)
{
    Disk disk;
    if (payload.size() != sizeof disk)
        return Err::kCorrupt;
    std::memcpy(&disk, payload.data(), sizeof disk);
    return disk;
}

}  // namespace

Key tree_root_key(uint64_t tree_id)
{
    return {tree_id, static_cast<uint8_t>(ItemType::kTreeRoot), 0};
}

Key volume_key()
{
    return {0, static_cast<uint8_t>(ItemType::kVolume), 0};
}

Key group_usage_key(VolumeAddress group)
{
    return {0, static_cast<uint8_t>(ItemType::kGroupSummary), group.value};
}

ItemBytes encode_tree_root(const BlockRef& root)
{
    DiskTreeRoot disk{};
    disk.root = encode(root);
    return item_of(disk);
}

ItemBytes encode_volume_counters(const VolumeCounters& counters)
{
    DiskVolume disk{};
    disk.next_inode = counters.next_inode;
    disk.inode_count = counters.inode_count;
    disk.reserved_blocks = counters.reserved_blocks;
    disk.compressed_file_blocks = counters.compressed_file_blocks;
    disk.compressed_blocks = counters.compressed_blocks;
    disk.compression_counted = counters.compression_counted ? 1 : 0;
    return item_of(disk);
}

ItemBytes encode_group_usage(const GroupUsage& usage)
{
    DiskGroupSummary disk{};
    disk.used_blocks = usage.used_blocks;
    disk.free_rows = usage.free_rows;
    disk.free_stripes = usage.free_stripes;
    return item_of(disk);
}

Result<BlockRef> decode_tree_root(std::span<const std::byte> payload)
{
    CW_ASSIGN(const auto disk, whole_item<DiskTreeRoot>(payload));
    return decode(disk.root);
}

Result<VolumeCounters> decode_volume_counters(std::span<const std::byte> payload)
{
    CW_ASSIGN(const auto disk, whole_item<DiskVolume>(payload));
    return VolumeCounters{disk.next_inode,        disk.inode_count,
                          disk.reserved_blocks,   disk.compressed_file_blocks,
                          disk.compressed_blocks, disk.compression_counted == 1};
}

Result<GroupUsage> decode_group_usage(VolumeAddress group, std::span<const std::byte> payload)
{
    CW_ASSIGN(const auto disk, whole_item<DiskGroupSummary>(payload));
    return GroupUsage{group, disk.used_blocks, disk.free_rows, disk.free_stripes};
}

}  // namespace cowraid
