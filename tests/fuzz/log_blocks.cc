// SPDX-License-Identifier: MIT
#include "tests/fuzz/log_blocks.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/checksum.h"
#include "format/fsync_codec.h"
#include "format/intent_codec.h"

namespace cowraid::test {

namespace {

template <typename T> bool take(const Bytes& image, size_t offset, T& out)
{
    if (offset > image.size() || image.size() - offset < sizeof out)
        return false;
    std::memcpy(&out, image.data() + offset, sizeof out);
    return true;
}

void read_intent_block(const Members& members, const Superblock& superblock, RawLog::Place place,
                       std::vector<RawLog>& logs)
{
    RawLog log{RawLog::Kind::kIntent, {place}, Bytes(kBlockBytes)};
    members[place.member]->peek(place.offset, log.image);
    DiskIntentHeader head;
    if (take(log.image, 0, head) && head.magic == kIntentMagic && head.epoch == superblock.log_epoch &&
        head.generation > superblock.root.generation.value)
        logs.push_back(std::move(log));
}

void read_fsync_batch(const Members& members, const Superblock& superblock, RawLog::Place place,
                      std::vector<RawLog>& logs)
{
    Bytes block(kBlockBytes);
    members[place.member]->peek(place.offset, block);
    DiskFsyncBlock head;
    if (!take(block, 0, head) || head.magic != kFsyncMagic || head.epoch != superblock.log_epoch ||
        head.generation <= superblock.tree_commits || head.block_index != 0)
        return;
    RawLog log{RawLog::Kind::kFsync, {place}, block};
    for (uint32_t index = 1; index < head.block_count; ++index) {
        members[place.member]->peek(place.offset + uint64_t{index} * kBlockBytes, block);
        log.image.insert(log.image.end(), block.begin() + sizeof head, block.end());
    }
    for (RawLog& other : logs)
        if (other.kind == log.kind && other.image == log.image) {
            other.copies.push_back(place);
            return;
        }
    logs.push_back(std::move(log));
}

// Of a record's state and its entries.
void parts_of_record(const Bytes& image, size_t at, size_t end, std::vector<LogPart>& parts)
{
    parts.push_back({"DiskFsyncState", at, 0});
    at += sizeof(DiskFsyncState);
    DiskFsyncEntry entry;
    while (at < end && take(image, at, entry)) {
        const auto kind = static_cast<FsyncEntryKind>(entry.kind);
        const uint64_t unit = kind == FsyncEntryKind::kPut ? 1 : kBlockBytes;
        const bool carries = kind == FsyncEntryKind::kPut || kind == FsyncEntryKind::kBlocks;
        const uint64_t tail = carries ? entry.count * unit : 0;
        if (tail > end - at)
            return;
        parts.push_back({"DiskFsyncEntry", at, tail});
        at += sizeof entry + tail;
    }
}

void store_fsync(const Members& members, const RawLog& log, std::string_view kept)
{
    DiskFsyncBlock head;
    std::memcpy(&head, log.image.data(), sizeof head);
    std::span<const std::byte> rest = std::span(log.image).subspan(sizeof head);
    if (kept != "content_checksum")
        head.content_checksum = checksum_of(rest.first(std::min<size_t>(rest.size(), head.content_bytes)));
    const bool own_index = head.block_index != 0;
    for (uint32_t index = 0; !rest.empty(); ++index) {
        Bytes block(kBlockBytes);
        const size_t bytes = std::min<size_t>(rest.size(), kFsyncRoomBytes);
        if (!own_index)
            head.block_index = index;
        std::memcpy(block.data(), &head, sizeof head);
        std::memcpy(block.data() + sizeof head, rest.data(), bytes);
        if (kept != "checksum") {
            const le64 checksum{checksum_of(std::span(block).subspan(sizeof(le64)))};
            std::memcpy(block.data(), &checksum, sizeof checksum);
        }
        for (const RawLog::Place& place : log.copies)
            members[place.member]->poke(place.offset + uint64_t{index} * kBlockBytes, block);
        rest = rest.subspan(bytes);
    }
}

}  // namespace

std::vector<RawLog> read_logs(const Members& members, const Superblock& superblock)
{
    std::vector<RawLog> logs;
    for (size_t i = 0; i < members.size(); ++i) {
        const MemberRecord& record = superblock.members[i];
        for (uint64_t at = 0; at < record.intent_log_bytes; at += kBlockBytes)
            read_intent_block(members, superblock, {i, record.intent_log_offset + at}, logs);
        for (uint64_t at = 0; at < record.fsync_log_bytes; at += kBlockBytes)
            read_fsync_batch(members, superblock, {i, record.fsync_log_offset + at}, logs);
    }
    return logs;
}

std::vector<LogPart> parts_of(const RawLog& log)
{
    std::vector<LogPart> parts;
    if (log.kind == RawLog::Kind::kIntent) {
        parts.push_back({"DiskIntentHeader", 0, 0});
        DiskIntentHeader head;
        DiskIntentEntry entry;
        size_t at = sizeof head;
        for (uint32_t i = 0; take(log.image, 0, head) && i < head.entry_count; ++i) {
            if (!take(log.image, at, entry) || log.image.size() - at < intent_entry_bytes(entry.data_columns))
                break;
            const size_t bytes = intent_entry_bytes(entry.data_columns);
            parts.push_back({"DiskIntentEntry", at, bytes - sizeof entry});
            at += bytes;
        }
        return parts;
    }
    parts.push_back({"DiskFsyncBlock", 0, 0});
    DiskFsyncBlock head;
    DiskFsyncRecord record;
    size_t at = sizeof head;
    for (uint32_t i = 0; take(log.image, 0, head) && i < head.record_count; ++i) {
        if (!take(log.image, at, record) || record.bytes > log.image.size() - at - sizeof record)
            break;
        parts.push_back({"DiskFsyncRecord", at, record.bytes});
        parts_of_record(log.image, at + sizeof record, at + sizeof record + record.bytes, parts);
        at += sizeof record + record.bytes;
    }
    return parts;
}

void store_log(const Members& members, const RawLog& log, std::string_view kept)
{
    if (log.kind == RawLog::Kind::kFsync)
        return store_fsync(members, log, kept);
    Bytes block = log.image;
    if (kept != "checksum") {
        const le64 checksum{checksum_of(std::span(block).subspan(sizeof(le64)))};
        std::memcpy(block.data(), &checksum, sizeof checksum);
    }
    for (const RawLog::Place& place : log.copies)
        members[place.member]->poke(place.offset, block);
}

}  // namespace cowraid::test
