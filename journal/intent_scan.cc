// SPDX-License-Identifier: MIT
#include "journal/intent_scan.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/buffer.h"
#include "base/checksum.h"
#include "base/log.h"
#include "device/member_batch.h"
#include "device/superblock_store.h"
#include "journal/log_life.h"

namespace cowraid {

namespace {

bool plausible(const IntentBlock& block)
{
    return block.header.floor <= kMaxIntentSequence + 1 &&
           std::all_of(block.entries.begin(), block.entries.end(),
                       [](const IntentEntry& entry) { return entry.sequence <= kMaxIntentSequence; });
}

bool same_row(const LoggedRow& row, const IntentEntry& entry)
{
    return row.row == entry.row && row.mapping_version == entry.mapping_version &&
           row.checksums == entry.checksums && row.modified == entry.modified;
}

}  // namespace

IntentScan::IntentScan(MemberSet& members, const Superblock& superblock)
    : members_(members), superblock_(superblock)
{
    RingReader reader(members, LogKind::kIntent);
    for (const MemberRecord& record : superblock.members)
        reader.add(record);
    for (RingReader::Block block; reader.next(block);)
        take_block(block);
    std::unordered_map<uint64_t, size_t> by_sequence;
    for (const Found& found : found_)
        collect(found, by_sequence);
    std::sort(rows_.begin(), rows_.end(), [](const LoggedRow& a, const LoggedRow& b) {
        return std::tie(a.row, b.sequence) < std::tie(b.row, a.sequence);
    });
}

// Each entry has a block of its own for the partial parity, and the ring overwrites a descriptor before its
// blocks, except where a slice goes on at the ring's begin. Twice as many are forged, and would take memory
// for each.
bool IntentScan::too_many_entries(const MemberRecord& record)
{
    return entry_counts_[record.id] > 2 * record.intent_log_bytes / kBlockBytes;
}

void IntentScan::take_block(const RingReader::Block& read)
{
    const MemberRecord& record = *read.record;
    if (read.unreadable) {
        IntentBlock unread;
        unread.header.epoch = superblock_.log_epoch;
        unread.header.generation = superblock_.root.generation.next();
        unread.header.block = read.number;
        found_.push_back({record.id, read.offset, unread});
        return;
    }
    IntentHeader expected;
    expected.volume_uuid = superblock_.volume_uuid;
    expected.member = record.id;
    expected.block = read.number;
    Result<IntentBlock> block = decode_intent_block(read.bytes, expected);
    // Numbers count within an epoch. What looks like a descriptor of another may be a partial parity,
    // which is what users wrote; the current epoch they do not know.
    if (!block.ok() || block->header.epoch != superblock_.log_epoch || !plausible(*block))
        return;
    for (const IntentEntry& entry : block->entries)
        next_sequence_ = std::max(next_sequence_, entry.sequence + 1);
    next_sequence_ = std::max(next_sequence_, block->header.floor);
    if (!log_entry_lives(superblock_, block->header.epoch, block->header.generation))
        return;
    floor_ = std::max(floor_, block->header.floor);
    if (too_many_entries(record))
        return;
    entry_counts_[record.id] += block->entries.size();
    if (too_many_entries(record)) {
        CW_LOG_WARNING("write-intent log: member %u has more entries than blocks: left out", record.id.value);
        std::erase_if(found_, [&](const Found& found) { return found.member == record.id; });
        return;
    }
    found_.push_back({record.id, read.offset, block.take()});
}

void IntentScan::collect(const Found& found, std::unordered_map<uint64_t, size_t>& by_sequence)
{
    const MemberRecord& record = *superblock_.member(found.member);
    const uint64_t block_count = record.intent_log_bytes / kBlockBytes;
    for (const IntentEntry& entry : found.block.entries) {
        if (entry.sequence < floor_ || entry.partial_block >= block_count)
            continue;
        const auto [known, added] = by_sequence.emplace(entry.sequence, rows_.size());
        if (added)
            rows_.push_back({.sequence = entry.sequence,
                             .row = entry.row,
                             .mapping_version = entry.mapping_version,
                             .checksums = entry.checksums,
                             .modified = entry.modified,
                             .copies = {}});
        LoggedRow& row = rows_[known->second];
        if (!same_row(row, entry)) {
            CW_LOG_WARNING("write-intent log: member %u contradicts others about entry %llu: left out",
                           found.member.value, static_cast<unsigned long long>(entry.sequence));
            continue;
        }
        const DeviceOffset partial{record.intent_log_offset + uint64_t{entry.partial_block} * kBlockBytes};
        row.copies.push_back({found.member, entry.parity_column, partial, entry.partial_checksum});
    }
}

Status IntentScan::read_partial(const LoggedRow::Copy& copy, std::span<std::byte> out)
{
    BlockDevice* device = members_.device(copy.member);
    if (device == nullptr)
        return Err::kMemberGone;
    AlignedBuffer block(kBlockBytes);
    CW_TRY(read_device(*device, copy.partial, block.span()));
    if (checksum_of(block.span()) != copy.partial_checksum)
        return Err::kCorrupt;
    std::memcpy(out.data(), block.data(), kBlockBytes);
    return {};
}

Status IntentScan::erase()
{
    AlignedBuffer descriptors(std::max<size_t>(found_.size(), 1) * kBlockBytes);
    MemberBatch writes(members_, MemberCounter::kWriteErrors);
    for (size_t index = 0; index < found_.size(); ++index) {
        const Found& found = found_[index];
        IntentHeader header = found.block.header;
        header.volume_uuid = superblock_.volume_uuid;
        header.member = found.member;
        header.floor = next_sequence_;
        const std::span<std::byte> descriptor = descriptors.span().subspan(index * kBlockBytes, kBlockBytes);
        encode_intent_block(header, {}, descriptor);
        writes.add_write(found.member, found.offset, descriptor);
    }
    CW_TRY(writes.run("write-intent log"));
    return flush_members(members_);
}

}  // namespace cowraid
