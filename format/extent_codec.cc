// SPDX-License-Identifier: MIT
#include "format/extent_codec.h"

#include <cstring>

#include "base/assert.h"
#include "format/superblock_codec.h"

namespace cowraid {

Key extent_key(InodeNumber inode, uint64_t file_block)
{
    return {inode.value, static_cast<uint8_t>(ItemType::kExtent), file_block * kBlockBytes};
}

ItemBytes encode_extent(const FileExtent& extent)
{
    CW_ASSERT(extent.block_count <= kMaxExtentBlocks);
    DiskExtent disk{};
    disk.address = extent.address.value;
    disk.generation = extent.generation.value;
    disk.block_count = extent.block_count;
    disk.disk_blocks = extent.kind == ExtentKind::kData ? extent.block_count : 0;
    disk.kind = static_cast<uint8_t>(extent.kind);
    ItemBytes payload(sizeof disk);
    std::memcpy(payload.data(), &disk, sizeof disk);
    return payload;
}

Result<FileExtent> decode_extent(uint64_t file_block, std::span<const std::byte> payload)
{
    DiskExtent disk;
    if (payload.size() != sizeof disk)
        return Err::kCorrupt;
    std::memcpy(&disk, payload.data(), sizeof disk);
    const bool data = disk.kind == static_cast<uint8_t>(ExtentKind::kData);
    const bool reserved = disk.kind == static_cast<uint8_t>(ExtentKind::kReserved);
    const uint64_t address = disk.address;
    if ((!data && !reserved) || disk.compression != 0 || disk.block_count == 0 || disk.offset_blocks != 0 ||
        file_block >= kMaxFileBlocks || disk.block_count > kMaxFileBlocks - file_block ||
        disk.block_count > kMaxExtentBlocks || address % kBlockBytes != 0 || data != (address != 0) ||
        disk.disk_blocks != (data ? disk.block_count.get() : 0u) ||
        address > kMaxVolumeAddress - uint64_t{disk.block_count} * kBlockBytes)
        return Err::kCorrupt;
    return FileExtent{
        file_block, disk.block_count, static_cast<ExtentKind>(disk.kind), {address}, {disk.generation}};
}

}  // namespace cowraid
