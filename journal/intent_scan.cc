// SPDX-License-Identifier: MIT
#include "journal/intent_scan.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/buffer.h"
#include "base/checksum.h"
#include "base/log.h"
#include "device/superblock_store.h"
#include "journal/log_life.h"

namespace cowraid {

namespace {

constexpr uint32_t kPieceBytes = 1 * kMiB;
// No log counts so far; a hostile number above it would leave none for the next entries.
constexpr uint64_t kMaxSequence = UINT64_MAX / 2;

bool plausible(const IntentBlock& block)
{
    return block.header.floor <= kMaxSequence &&
           std::all_of(block.entries.begin(), block.entries.end(),
                       [](const IntentEntry& entry) { return entry.sequence <= kMaxSequence; });
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
    for (const MemberRecord& record : superblock.members)
        scan(record);
    std::unordered_map<uint64_t, size_t> by_sequence;
    for (const Found& found : found_)
        collect(found, by_sequence);
    std::sort(rows_.begin(), rows_.end(), [](const LoggedRow& a, const LoggedRow& b) {
        return std::tie(a.row, b.sequence) < std::tie(b.row, a.sequence);
    });
}

void IntentScan::scan(const MemberRecord& record)
{
    BlockDevice* device = members_.device(record.id);
    if (device == nullptr)
        return;
    AlignedBuffer buffer(kPieceBytes);
    for (uint64_t at = 0; at < record.intent_log_bytes; at += kPieceBytes) {
        const uint64_t bytes = std::min<uint64_t>(kPieceBytes, record.intent_log_bytes - at);
        const std::span<std::byte> piece = buffer.span().first(bytes);
        const DeviceOffset offset{record.intent_log_offset + at};
        if (!read_device(*device, offset, piece).ok()) {
            members_.count(record.id, MemberCounter::kReadErrors);
            // Block by block, so that a bad sector costs the entries it holds and no more.
            for (uint64_t block = 0; block < bytes; block += kBlockBytes) {
                const std::span<std::byte> one = piece.subspan(block, kBlockBytes);
                if (read_device(*device, offset + block, one).ok())
                    continue;
                std::memset(one.data(), 0, one.size());
                IntentBlock unread;
                unread.header.epoch = superblock_.epochs.front().epoch;
                unread.header.generation = superblock_.root.generation.next();
                unread.header.block = static_cast<uint32_t>((at + block) / kBlockBytes);
                found_.push_back({record.id, offset + block, unread});
            }
        }
        scan_piece(record, at / kBlockBytes, piece);
    }
}

void IntentScan::scan_piece(const MemberRecord& record, uint64_t first_block,
                            std::span<const std::byte> bytes)
{
    IntentHeader expected;
    expected.volume_uuid = superblock_.volume_uuid;
    expected.member = record.id;
    for (uint64_t at = 0; at < bytes.size(); at += kBlockBytes) {
        expected.block = static_cast<uint32_t>(first_block + at / kBlockBytes);
        Result<IntentBlock> block = decode_intent_block(bytes.subspan(at, kBlockBytes), expected);
        if (!block.ok() || !plausible(*block))
            continue;
        for (const IntentEntry& entry : block->entries)
            next_sequence_ = std::max(next_sequence_, entry.sequence + 1);
        next_sequence_ = std::max(next_sequence_, block->header.floor);
        if (!log_entry_lives(superblock_, block->header.epoch, block->header.generation))
            continue;
        floor_ = std::max(floor_, block->header.floor);
        const DeviceOffset offset{record.intent_log_offset + uint64_t{expected.block} * kBlockBytes};
        found_.push_back({record.id, offset, block.take()});
    }
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

Status IntentScan::erase(size_t needed)
{
    AlignedBuffer descriptors(std::max<size_t>(found_.size(), 1) * kBlockBytes);
    std::vector<iovec> vectors;
    vectors.reserve(found_.size());
    std::vector<IoRequest> requests;
    std::vector<MemberId> asked;
    for (const Found& found : found_) {
        BlockDevice* device = members_.device(found.member);
        if (device == nullptr)
            continue;
        IntentHeader header = found.block.header;
        header.volume_uuid = superblock_.volume_uuid;
        header.member = found.member;
        header.floor = next_sequence_;
        std::byte* const descriptor = descriptors.data() + vectors.size() * kBlockBytes;
        encode_intent_block(header, {}, {descriptor, kBlockBytes});
        vectors.push_back({descriptor, kBlockBytes});
        requests.push_back({.kind = IoKind::kWrite,
                            .device = device,
                            .offset = found.offset,
                            .vectors = {&vectors.back(), 1}});
        asked.push_back(found.member);
    }
    run_io(requests);
    for (size_t index = 0; index < requests.size(); ++index) {
        if (requests[index].result.ok())
            continue;
        members_.count(asked[index], MemberCounter::kWriteErrors);
        members_.mark_failed(asked[index]);
    }
    return flush_members(members_, needed);
}

}  // namespace cowraid
