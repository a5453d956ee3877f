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

// Memory for pieces of all logs; of one log, between these.
constexpr uint64_t kScanBytes = 32 * kMiB;
constexpr uint64_t kPieceBytesMin = 64 * kKiB;
constexpr uint64_t kPieceBytesMax = 1 * kMiB;

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
    scan_all();
    std::unordered_map<uint64_t, size_t> by_sequence;
    for (const Found& found : found_)
        collect(found, by_sequence);
    std::sort(rows_.begin(), rows_.end(), [](const LoggedRow& a, const LoggedRow& b) {
        return std::tie(a.row, b.sequence) < std::tie(b.row, a.sequence);
    });
}

// All members' logs side by side: together they take as long as the longest.
void IntentScan::scan_all()
{
    std::vector<Reading> readings;
    uint64_t longest = 0;
    for (const MemberRecord& record : superblock_.members) {
        BlockDevice* device = members_.device(record.id);
        if (device == nullptr)
            continue;
        readings.push_back({.record = &record, .device = device, .buffer = {}, .vector = {}});
        longest = std::max(longest, record.intent_log_bytes);
    }
    if (readings.empty())
        return;
    const uint64_t piece_bytes =
        std::clamp<uint64_t>(kScanBytes / readings.size(), kPieceBytesMin, kPieceBytesMax) / kBlockBytes *
        kBlockBytes;
    for (Reading& reading : readings)
        reading.buffer = AlignedBuffer(piece_bytes);
    for (uint64_t at = 0; at < longest; at += piece_bytes)
        scan_pieces(readings, at, piece_bytes);
}

// The pieces at byte `at` of every log that is as long.
void IntentScan::scan_pieces(std::span<Reading> readings, uint64_t at, uint64_t piece_bytes)
{
    std::vector<IoRequest> requests;
    std::vector<Reading*> asked;
    for (Reading& reading : readings) {
        if (at >= reading.record->intent_log_bytes)
            continue;
        reading.vector = {reading.buffer.data(),
                          std::min<uint64_t>(piece_bytes, reading.record->intent_log_bytes - at)};
        requests.push_back({.kind = IoKind::kRead,
                            .device = reading.device,
                            .offset = {reading.record->intent_log_offset + at},
                            .vectors = {&reading.vector, 1}});
        asked.push_back(&reading);
    }
    run_io(requests);
    for (size_t index = 0; index < requests.size(); ++index) {
        Reading& reading = *asked[index];
        const std::span<std::byte> piece = reading.buffer.span().first(reading.vector.iov_len);
        if (!requests[index].result.ok())
            read_by_block(reading, at, piece);
        scan_piece(reading, at / kBlockBytes, piece);
    }
}

// So that a bad sector costs the entries it holds and no more.
void IntentScan::read_by_block(const Reading& reading, uint64_t at, std::span<std::byte> piece)
{
    members_.count(reading.record->id, MemberCounter::kReadErrors);
    const DeviceOffset offset{reading.record->intent_log_offset + at};
    for (uint64_t block = 0; block < piece.size(); block += kBlockBytes) {
        const std::span<std::byte> one = piece.subspan(block, kBlockBytes);
        if (read_device(*reading.device, offset + block, one).ok())
            continue;
        std::memset(one.data(), 0, one.size());
        IntentBlock unread;
        unread.header.epoch = superblock_.log_epoch;
        unread.header.generation = superblock_.root.generation.next();
        unread.header.block = static_cast<uint32_t>((at + block) / kBlockBytes);
        found_.push_back({reading.record->id, offset + block, unread});
    }
}

// Each entry has a block of its own for the partial parity, and the ring overwrites a descriptor before its
// blocks, except where a slice goes on at the ring's begin. Twice as many are forged, and would take memory
// for each.
bool IntentScan::too_many_entries(const Reading& reading) const
{
    return reading.entry_count > 2 * reading.record->intent_log_bytes / kBlockBytes;
}

void IntentScan::scan_piece(Reading& reading, uint64_t first_block, std::span<const std::byte> bytes)
{
    const MemberRecord& record = *reading.record;
    IntentHeader expected;
    expected.volume_uuid = superblock_.volume_uuid;
    expected.member = record.id;
    for (uint64_t at = 0; at < bytes.size(); at += kBlockBytes) {
        expected.block = static_cast<uint32_t>(first_block + at / kBlockBytes);
        Result<IntentBlock> block = decode_intent_block(bytes.subspan(at, kBlockBytes), expected);
        // Numbers count within an epoch. What looks like a descriptor of another may be a partial parity,
        // which is what users wrote; the current epoch they do not know.
        if (!block.ok() || block->header.epoch != superblock_.log_epoch || !plausible(*block))
            continue;
        for (const IntentEntry& entry : block->entries)
            next_sequence_ = std::max(next_sequence_, entry.sequence + 1);
        next_sequence_ = std::max(next_sequence_, block->header.floor);
        if (!log_entry_lives(superblock_, block->header.epoch, block->header.generation))
            continue;
        floor_ = std::max(floor_, block->header.floor);
        if (too_many_entries(reading))
            continue;
        reading.entry_count += block->entries.size();
        if (too_many_entries(reading)) {
            CW_LOG_WARNING("write-intent log: member %u has more entries than blocks: left out",
                           record.id.value);
            std::erase_if(found_, [&](const Found& found) { return found.member == record.id; });
            continue;
        }
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

Status IntentScan::erase()
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
    std::vector<MemberId> failed;
    for (size_t index = 0; index < requests.size(); ++index) {
        if (requests[index].result.ok())
            continue;
        members_.count(asked[index], MemberCounter::kWriteErrors);
        failed.push_back(asked[index]);
    }
    if (!members_.fail(failed))
        return Err::kTooManyFaults;
    return flush_members(members_);
}

}  // namespace cowraid
