// SPDX-License-Identifier: MIT
#include "format/fsync_codec.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "base/checksum.h"
#include "format/stored_checksum.h"
#include "format/superblock_codec.h"

namespace cowraid {

namespace {

DiskFsyncBlock encode_header(const FsyncHeader& header)
{
    DiskFsyncBlock disk{};
    disk.magic = kFsyncMagic;
    std::memcpy(disk.volume_uuid, header.volume_uuid.bytes.data(), sizeof disk.volume_uuid);
    disk.epoch = header.epoch;
    disk.generation = header.generation.value;
    disk.generation_first = header.generation_first;
    disk.generation_before = header.generation_before.value;
    disk.sequence = header.sequence;
    disk.content_checksum = header.content_checksum;
    disk.record_count = header.record_count;
    disk.content_bytes = header.content_bytes;
    disk.block_count = header.block_count();
    disk.acknowledged = header.acknowledged;
    return disk;
}

std::vector<std::byte> join(std::span<const std::span<const std::byte>> records, size_t content_bytes)
{
    std::vector<std::byte> content;
    content.reserve(content_bytes);
    for (const std::span<const std::byte> record : records) {
        CW_ASSERT(record.size() <= kMaxFsyncRecordBytes);
        DiskFsyncRecord disk{};
        disk.bytes = static_cast<uint32_t>(record.size());
        const std::span<const std::byte> head = std::as_bytes(std::span(&disk, 1));
        content.insert(content.end(), head.begin(), head.end());
        content.insert(content.end(), record.begin(), record.end());
    }
    CW_ASSERT(content.size() == content_bytes);
    return content;
}

// Whether a header that was read is one that encode_fsync_batch() could have written.
bool header_valid(const FsyncHeader& header)
{
    return header.sequence > 0 && header.record_count > 0 && header.content_bytes <= kMaxFsyncContentBytes &&
           header.sequence <= kMaxFsyncSequence &&
           header.record_count <= header.content_bytes / sizeof(DiskFsyncRecord) &&
           header.acknowledged <= header.sequence && header.generation_first > 0 &&
           header.generation_first <= header.sequence && header.generation.value <= kMaxGeneration &&
           header.generation_before < header.generation;
}

}  // namespace

uint32_t FsyncHeader::block_count() const
{
    return static_cast<uint32_t>(divide_up(content_bytes, kFsyncRoomBytes));
}

void encode_fsync_batch(FsyncHeader& header, std::span<const std::span<const std::byte>> records,
                        std::span<std::byte> out)
{
    CW_ASSERT(header_valid(header) && records.size() == header.record_count);
    CW_ASSERT(out.size() == uint64_t{header.block_count()} * kBlockBytes);
    const std::vector<std::byte> content = join(records, header.content_bytes);
    header.content_checksum = checksum_of(content);
    DiskFsyncBlock disk = encode_header(header);
    std::span<const std::byte> rest(content);
    for (uint32_t index = 0; index < header.block_count(); ++index) {
        const std::span<std::byte> block = out.subspan(size_t{index} * kBlockBytes, kBlockBytes);
        const size_t bytes = std::min<size_t>(rest.size(), kFsyncRoomBytes);
        disk.block_index = index;
        std::memcpy(block.data() + sizeof disk, rest.data(), bytes);
        std::memset(block.data() + sizeof disk + bytes, 0, kFsyncRoomBytes - bytes);
        std::memcpy(block.data(), &disk, sizeof disk);
        const le64 checksum(checksum_of_rest(block));
        std::memcpy(block.data(), &checksum, sizeof checksum);
        rest = rest.subspan(bytes);
    }
}

Result<FsyncBlock> decode_fsync_block(std::span<const std::byte> bytes, const Uuid& volume_uuid)
{
    CW_ASSERT(bytes.size() == kBlockBytes);
    DiskFsyncBlock disk;
    std::memcpy(&disk, bytes.data(), sizeof disk);
    if (disk.magic != kFsyncMagic ||
        std::memcmp(disk.volume_uuid, volume_uuid.bytes.data(), sizeof disk.volume_uuid) != 0)
        return Err::kNotFound;
    if (disk.checksum != checksum_of_rest(bytes))
        return Err::kCorrupt;
    FsyncBlock block;
    FsyncHeader& header = block.header;
    header.volume_uuid = volume_uuid;
    header.epoch = disk.epoch;
    header.generation = {disk.generation};
    header.generation_first = disk.generation_first;
    header.generation_before = {disk.generation_before};
    header.sequence = disk.sequence;
    header.content_checksum = disk.content_checksum;
    header.record_count = disk.record_count;
    header.content_bytes = disk.content_bytes;
    header.acknowledged = disk.acknowledged;
    block.block_index = disk.block_index;
    if (!header_valid(header) || disk.block_count != header.block_count() ||
        block.block_index >= header.block_count())
        return Err::kCorrupt;
    return block;
}

Result<FsyncContent> decode_fsync_batch(std::span<const std::byte> bytes, const FsyncHeader& header)
{
    CW_ASSERT(bytes.size() == uint64_t{header.block_count()} * kBlockBytes);
    FsyncContent content;
    content.bytes.reserve(header.content_bytes);
    for (uint32_t index = 0; index < header.block_count(); ++index) {
        const std::span<const std::byte> raw = bytes.subspan(size_t{index} * kBlockBytes, kBlockBytes);
        const Result<FsyncBlock> block = decode_fsync_block(raw, header.volume_uuid);
        if (!block.ok() || block->block_index != index || !(block->header == header))
            return Err::kCorrupt;
        const size_t left = header.content_bytes - content.bytes.size();
        const auto room = raw.subspan(sizeof(DiskFsyncBlock), std::min<size_t>(left, kFsyncRoomBytes));
        content.bytes.insert(content.bytes.end(), room.begin(), room.end());
    }
    if (checksum_of(content.bytes) != header.content_checksum)
        return Err::kCorrupt;
    std::span<const std::byte> rest(content.bytes);
    for (uint32_t index = 0; index < header.record_count; ++index) {
        DiskFsyncRecord record;
        if (rest.size() < sizeof record)
            return Err::kCorrupt;
        std::memcpy(&record, rest.data(), sizeof record);
        rest = rest.subspan(sizeof record);
        if (record.bytes > rest.size())
            return Err::kCorrupt;
        content.records.push_back(rest.first(record.bytes));
        rest = rest.subspan(record.bytes);
    }
    return rest.empty() ? Result<FsyncContent>(std::move(content)) : Err::kCorrupt;
}

}  // namespace cowraid
