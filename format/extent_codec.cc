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

// Of what the frame holds, and that it is smaller than that.
bool frame_is_valid(const DiskExtent& disk, uint64_t file_block)
{
    return disk.compression == static_cast<uint8_t>(Compression::kZstd) &&
           disk.offset_blocks < kFrameBlocksMax && disk.block_count <= kFrameBlocksMax - disk.offset_blocks &&
           disk.offset_blocks <= file_block && disk.disk_blocks < kFrameBlocksMax &&
           disk.more_runs < disk.disk_blocks;
}

Result<std::vector<StoredRun>> decode_frame(const DiskExtent& disk, std::span<const std::byte> runs)
{
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
           generation == other.generation && frame == other.frame;
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
        return frame;
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
    CW_ASSERT(extent.compressed() == !extent.frame.empty());
    DiskExtent disk{};
    disk.address = extent.address.value;
    disk.generation = extent.generation.value;
    disk.block_count = extent.block_count;
    disk.disk_blocks = extent.stored_blocks();
    disk.kind = static_cast<uint8_t>(extent.kind);
    disk.compression = static_cast<uint8_t>(extent.compression);
    disk.offset_blocks = extent.offset_blocks;
    const size_t more_runs = extent.compressed() ? extent.frame.size() - 1 : 0;
    disk.more_runs = static_cast<uint16_t>(more_runs);
    ItemBytes payload(sizeof disk + more_runs * sizeof(DiskExtentRun));
    std::memcpy(payload.data(), &disk, sizeof disk);
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
        disk.block_count > kMaxFileBlocks - file_block || disk.block_count > kMaxExtentBlocks ||
        payload.size() != sizeof disk + disk.more_runs * sizeof(DiskExtentRun))
        return Err::kCorrupt;
    FileExtent extent{
        file_block, disk.block_count, static_cast<ExtentKind>(disk.kind), {disk.address}, {disk.generation}};
    if (data ? !blocks_are_valid(disk.address, disk.disk_blocks) : disk.address != 0)
        return Err::kCorrupt;
    if (disk.compression == 0) {
        const uint32_t stored = data ? disk.block_count.get() : 0;
        const bool plain = disk.disk_blocks == stored && disk.more_runs == 0 && disk.offset_blocks == 0;
        return plain ? Result<FileExtent>(std::move(extent)) : Err::kCorrupt;
    }
    if (!data || !frame_is_valid(disk, file_block))
        return Err::kCorrupt;
    extent.compression = static_cast<Compression>(disk.compression);
    extent.offset_blocks = disk.offset_blocks;
    CW_ASSIGN(extent.frame, decode_frame(disk, payload.subspan(sizeof disk)));
    return extent;
}

}  // namespace cowraid
