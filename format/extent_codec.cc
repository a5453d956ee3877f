// SPDX-License-Identifier: MIT
#include "format/extent_codec.h"

#include <cstring>

#include "base/assert.h"
#include "format/superblock_codec.h"

namespace cowraid {

namespace {

bool blocks_are_valid(uint64_t address, uint64_t block_count)
{
    return address != 0 && address % kBlockBytes == 0 && block_count != 0 &&
           block_count <= kMaxExtentBlocks && address <= kMaxVolumeAddress - block_count * kBlockBytes;
}

// That it is a part of what a frame may hold.
bool part_is_valid(const DiskExtent& disk, uint64_t file_block)
{
    return disk.offset_blocks < kFrameBlocksMax && disk.block_count <= kFrameBlocksMax - disk.offset_blocks &&
           disk.offset_blocks <= file_block;
}

Result<std::vector<StoredRun>> decode_frame(const DiskExtent& disk, std::span<const std::byte> runs)
{
    if (!blocks_are_valid(disk.address, disk.disk_blocks) || disk.disk_blocks >= kFrameBlocksMax ||
        disk.more_runs >= disk.disk_blocks || runs.size() != disk.more_runs * sizeof(DiskExtentRun))
        return Err::kCorrupt;
    std::vector<StoredRun> frame{{{disk.address}, disk.disk_blocks}};
    for (size_t at = 0; at < runs.size(); at += sizeof(DiskExtentRun)) {
        DiskExtentRun run;
        std::memcpy(&run, runs.data() + at, sizeof run);
        // The first run has what the others leave of all blocks.
        if (run.block_count >= frame.front().block_count || run.reserved != 0 ||
            !blocks_are_valid(run.address, run.block_count))
            return Err::kCorrupt;
        frame.front().block_count -= run.block_count;
        frame.push_back({{run.address}, run.block_count});
    }
    return frame;
}

}  // namespace

bool FileExtent::same_frame(const FileExtent& other) const
{
    return compressed() && other.compressed() && frame_start() == other.frame_start() &&
           generation == other.generation && frame == other.frame && inline_frame == other.inline_frame;
}

uint32_t FileExtent::stored_blocks() const
{
    if (!compressed())
        return kind == ExtentKind::kData ? block_count : 0;
    uint32_t blocks = 0;
    for (const StoredRun& run : frame)
        blocks += run.block_count;
    return blocks;
}

std::vector<StoredRun> FileExtent::stored_runs() const
{
    if (compressed())
        return frame;  // none of an inline one
    if (kind != ExtentKind::kData)
        return {};
    return {{address, block_count}};
}

FileExtent FileExtent::slice(uint64_t skip, uint64_t count) const
{
    FileExtent part = *this;
    part.file_block += skip;
    part.block_count = static_cast<uint32_t>(count);
    if (compressed())
        part.offset_blocks += static_cast<uint32_t>(skip);
    else if (kind == ExtentKind::kData)
        part.address = address + skip * kBlockBytes;
    return part;
}

Key extent_key(InodeNumber inode, uint64_t file_block)
{
    return {inode.value, static_cast<uint8_t>(ItemType::kExtent), file_block * kBlockBytes};
}

ItemBytes encode_extent(const FileExtent& extent)
{
    CW_ASSERT(extent.block_count <= kMaxExtentBlocks);
    CW_ASSERT((extent.compression == Compression::kZstd) == !extent.frame.empty());
    CW_ASSERT(extent.is_inline() == !extent.inline_frame.empty());
    DiskExtent disk{};
    disk.address = extent.address.value;
    disk.generation = extent.generation.value;
    disk.block_count = extent.block_count;
    disk.disk_blocks = extent.stored_blocks();
    disk.kind = static_cast<uint8_t>(extent.kind);
    disk.compression = static_cast<uint8_t>(extent.compression);
    disk.offset_blocks = extent.offset_blocks;
    const size_t more_runs = extent.frame.empty() ? 0 : extent.frame.size() - 1;
    disk.more_runs = static_cast<uint16_t>(more_runs);
    ItemBytes payload(sizeof disk + more_runs * sizeof(DiskExtentRun) + extent.inline_frame.size());
    std::memcpy(payload.data(), &disk, sizeof disk);
    if (extent.is_inline())
        std::memcpy(payload.data() + sizeof disk, extent.inline_frame.data(), extent.inline_frame.size());
    for (size_t i = 0; i < more_runs; ++i) {
        DiskExtentRun run{};
        run.address = extent.frame[i + 1].address.value;
        run.block_count = extent.frame[i + 1].block_count;
        std::memcpy(payload.data() + sizeof disk + i * sizeof run, &run, sizeof run);
    }
    return payload;
}

Result<FileExtent> decode_extent(uint64_t file_block, std::span<const std::byte> payload)
{
    DiskExtent disk;
    if (payload.size() < sizeof disk)
        return Err::kCorrupt;
    std::memcpy(&disk, payload.data(), sizeof disk);
    const bool data = disk.kind == static_cast<uint8_t>(ExtentKind::kData);
    const bool reserved = disk.kind == static_cast<uint8_t>(ExtentKind::kReserved);
    if ((!data && !reserved) || disk.block_count == 0 || file_block >= kMaxFileBlocks ||
        disk.block_count > kMaxFileBlocks - file_block || disk.block_count > kMaxExtentBlocks)
        return Err::kCorrupt;
    FileExtent extent{
        file_block, disk.block_count, static_cast<ExtentKind>(disk.kind), {disk.address}, {disk.generation}};
    const std::span<const std::byte> more = payload.subspan(sizeof disk);
    const bool in_blocks = disk.address != 0 || disk.disk_blocks != 0 || disk.more_runs != 0;
    if (reserved || disk.compression == static_cast<uint8_t>(Compression::kNone)) {
        const bool whole = reserved ? !in_blocks
                                    : blocks_are_valid(disk.address, disk.disk_blocks) &&
                                          disk.disk_blocks == disk.block_count && disk.more_runs == 0;
        const bool plain = disk.compression == 0 && disk.offset_blocks == 0 && more.empty();
        return whole && plain ? Result<FileExtent>(std::move(extent)) : Err::kCorrupt;
    }
    if (!part_is_valid(disk, file_block))
        return Err::kCorrupt;
    extent.compression = static_cast<Compression>(disk.compression);
    extent.offset_blocks = disk.offset_blocks;
    if (extent.is_inline()) {
        if (in_blocks || more.empty() || more.size() > kInlineBytesMax || disk.offset_blocks != file_block)
            return Err::kCorrupt;
        extent.inline_frame.assign(more.begin(), more.end());
        return extent;
    }
    if (extent.compression != Compression::kZstd)
        return Err::kCorrupt;
    CW_ASSIGN(extent.frame, decode_frame(disk, more));
    return extent;
}

}  // namespace cowraid
