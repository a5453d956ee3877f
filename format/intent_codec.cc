// SPDX-License-Identifier: MIT
#include "format/intent_codec.h"

#include <cstring>

#include "base/assert.h"
#include "format/stored_checksum.h"

namespace cowraid {

namespace {

size_t mark_bytes(size_t data_columns)
{
    return divide_up(data_columns, 8);
}

std::byte* encode_entry(const IntentEntry& entry, std::byte* at)
{
    DiskIntentEntry disk{};
    disk.sequence = entry.sequence;
    disk.row = entry.row.value;
    disk.partial_checksum = entry.partial_checksum;
    disk.partial_block = entry.partial_block;
    disk.mapping_version = entry.mapping_version;
    disk.data_columns = static_cast<uint16_t>(entry.checksums.size());
    disk.parity_column = static_cast<uint8_t>(entry.parity_column);
    std::memcpy(at, &disk, sizeof disk);
    at += sizeof disk;
    for (const Checksum checksum : entry.checksums) {
        const le64 stored(checksum);
        std::memcpy(at, &stored, sizeof stored);
        at += sizeof stored;
    }
    const size_t marks = mark_bytes(entry.checksums.size());
    std::memset(at, 0, marks);
    for (size_t column = 0; column < entry.checksums.size(); ++column)
        if (entry.modified[column])
            at[column / 8] |= std::byte{1} << (column % 8);
    return at + marks;
}

// Takes one entry from the front of `bytes`.
Status decode_entry(std::span<const std::byte>& bytes, IntentEntry& entry)
{
    DiskIntentEntry disk;
    if (bytes.size() < sizeof disk)
        return Err::kCorrupt;
    std::memcpy(&disk, bytes.data(), sizeof disk);
    const size_t columns = disk.data_columns;
    if (columns == 0 || columns > kMaxIntentColumns || bytes.size() < intent_entry_bytes(columns) ||
        disk.sequence == 0 || disk.row == 0 || disk.row % kBlockBytes != 0)
        return Err::kCorrupt;
    entry.sequence = disk.sequence;
    entry.row = {disk.row};
    entry.partial_checksum = disk.partial_checksum;
    entry.partial_block = disk.partial_block;
    entry.mapping_version = disk.mapping_version;
    entry.parity_column = disk.parity_column;
    const std::byte* at = bytes.data() + sizeof disk;
    for (size_t column = 0; column < columns; ++column, at += sizeof(le64)) {
        le64 stored;
        std::memcpy(&stored, at, sizeof stored);
        entry.checksums.push_back(stored);
    }
    for (size_t column = 0; column < columns; ++column)
        entry.modified[column] = (at[column / 8] >> (column % 8) & std::byte{1}) != std::byte{0};
    bytes = bytes.subspan(intent_entry_bytes(columns));
    return {};
}

}  // namespace

size_t intent_entry_bytes(size_t data_columns)
{
    return sizeof(DiskIntentEntry) + data_columns * sizeof(le64) + mark_bytes(data_columns);
}

void encode_intent_block(const IntentHeader& header, std::span<const IntentEntry> entries,
                         std::span<std::byte> out)
{
    CW_ASSERT(out.size() == kBlockBytes);
    DiskIntentHeader disk{};
    disk.magic = kIntentMagic;
    std::memcpy(disk.volume_uuid, header.volume_uuid.bytes.data(), sizeof disk.volume_uuid);
    disk.epoch = header.epoch;
    disk.generation = header.generation.value;
    disk.floor = header.floor;
    disk.member_id = header.member.value;
    disk.block = header.block;
    disk.entry_count = static_cast<uint32_t>(entries.size());
    std::byte* at = out.data() + sizeof disk;
    for (const IntentEntry& entry : entries) {
        const auto room = static_cast<size_t>(out.data() + out.size() - at);
        CW_ASSERT(!entry.checksums.empty() && intent_entry_bytes(entry.checksums.size()) <= room);
        at = encode_entry(entry, at);
    }
    disk.entry_bytes = static_cast<uint32_t>(at - out.data() - static_cast<std::ptrdiff_t>(sizeof disk));
    std::memset(at, 0, static_cast<size_t>(out.data() + out.size() - at));
    std::memcpy(out.data(), &disk, sizeof disk);
    disk.checksum = checksum_of_rest(out);
    std::memcpy(out.data(), &disk, sizeof disk);
}

Result<IntentBlock> decode_intent_block(std::span<const std::byte> bytes, const IntentHeader& expected)
{
    CW_ASSERT(bytes.size() == kBlockBytes);
    DiskIntentHeader disk;
    std::memcpy(&disk, bytes.data(), sizeof disk);
    if (disk.magic != kIntentMagic || disk.member_id != expected.member.value ||
        disk.block != expected.block ||
        std::memcmp(disk.volume_uuid, expected.volume_uuid.bytes.data(), sizeof disk.volume_uuid) != 0)
        return Err::kNotFound;
    if (disk.checksum != checksum_of_rest(bytes) || disk.entry_bytes > kIntentRoomBytes)
        return Err::kCorrupt;
    IntentBlock block{expected, {}};
    block.header.epoch = disk.epoch;
    block.header.generation = {disk.generation};
    block.header.floor = disk.floor;
    std::span<const std::byte> rest = bytes.subspan(sizeof disk, disk.entry_bytes);
    for (uint32_t index = 0; index < disk.entry_count; ++index)
        CW_TRY(decode_entry(rest, block.entries.emplace_back()));
    return rest.empty() ? Result<IntentBlock>(std::move(block)) : Err::kCorrupt;
}

}  // namespace cowraid
