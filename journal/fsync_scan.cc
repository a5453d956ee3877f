// SPDX-License-Identifier: MIT
#include "journal/fsync_scan.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/buffer.h"
#include "base/log.h"

namespace cowraid {

namespace {

constexpr uint32_t kPieceBytes = 512 * kKiB;  // read from every member at a time

void warn(const char* what, uint64_t sequence)
{
    CW_LOG_WARNING("fsync log: %s at record %llu: what follows is left out", what,
                   static_cast<unsigned long long>(sequence));
}

// Whether `next`, whose records follow those of `last`, says the same of generations as it does.
bool fits_behind(const FsyncHeader& last, const FsyncHeader& next)
{
    if (next.generation == last.generation)
        return next.generation_first == last.generation_first &&
               next.generation_before == last.generation_before;
    return next.generation_first == next.sequence && next.generation_before == last.generation;
}

}  // namespace

// The log of one member while it is read.
struct FsyncScan::Reader {
    const MemberRecord* record;
    BlockDevice* device;
    AlignedBuffer buffer{kPieceBytes};
    iovec vector{};
    Partial partial{};
};

FsyncScan::FsyncScan(MemberSet& members, const Superblock& superblock, Generation committed)
    : members_(members), superblock_(superblock), committed_(committed), commit_at_least_(committed)
{
    std::vector<Reader> readers;
    uint64_t longest = 0;
    for (const MemberRecord& record : superblock.members) {
        BlockDevice* device = members.device(record.id);
        // A member that commits have skipped may hold records that the others have numbered anew.
        if (device == nullptr || record.state != MemberState::kPresent) {
            all_read_ = false;
            continue;
        }
        readers.push_back({.record = &record, .device = device});
        longest = std::max(longest, record.fsync_log_bytes);
    }
    for (uint64_t at = 0; at < longest; at += kPieceBytes)
        scan_pieces(readers, at);
    // Whatever was not read now, because it is away, unreadable or damaged, may be read at another time. It
    // belongs to these generations at most.
    if (!all_read_)
        commit_at_least_ = {committed.value + kFsyncGenerations};
    merge_copies();
    prefix_ = choose_prefix();
}

// Nobody writes records of later generations, so those are forged.
bool FsyncScan::live(const FsyncHeader& header) const
{
    return header.epoch == superblock_.log_epoch && header.generation > committed_ &&
           header.generation.value <= committed_.value + kFsyncGenerations;
}

// All members side by side: a mount waits for this.
void FsyncScan::scan_pieces(std::span<Reader> readers, uint64_t at)
{
    std::vector<IoRequest> requests;
    std::vector<Reader*> asked;
    for (Reader& reader : readers) {
        if (at >= reader.record->fsync_log_bytes)
            continue;
        const uint64_t bytes = std::min<uint64_t>(kPieceBytes, reader.record->fsync_log_bytes - at);
        reader.vector = {reader.buffer.data(), bytes};
        requests.push_back({.kind = IoKind::kRead,
                            .device = reader.device,
                            .offset = {reader.record->fsync_log_offset + at},
                            .vectors = {&reader.vector, 1}});
        asked.push_back(&reader);
    }
    run_io(requests);
    for (size_t index = 0; index < requests.size(); ++index) {
        if (!requests[index].result.ok())
            read_blocks(*asked[index], at);
        take_piece(*asked[index], at);
    }
}

// After an error: block by block, so that a bad sector costs the batch it belongs to and no more.
void FsyncScan::read_blocks(Reader& reader, uint64_t at)
{
    all_read_ = false;
    members_.count(reader.record->id, MemberCounter::kReadErrors);
    for (uint64_t block = 0; block < reader.vector.iov_len; block += kBlockBytes) {
        const std::span<std::byte> one = reader.buffer.span().subspan(block, kBlockBytes);
        if (!read_device(*reader.device, {reader.record->fsync_log_offset + at + block}, one).ok())
            std::memset(one.data(), 0, one.size());
    }
}

void FsyncScan::take_piece(Reader& reader, uint64_t at)
{
    for (uint64_t block_at = 0; block_at < reader.vector.iov_len; block_at += kBlockBytes) {
        const Result<FsyncBlock> block =
            decode_fsync_block(reader.buffer.span().subspan(block_at, kBlockBytes), superblock_.volume_uuid);
        const DeviceOffset offset{reader.record->fsync_log_offset + at + block_at};
        if (block.ok())
            take_block(reader.record->id, offset, *block, reader.partial);
        else
            reader.partial.seen = 0;
        all_read_ = all_read_ && block.err() != Err::kCorrupt;
    }
}

void FsyncScan::take_block(MemberId member, DeviceOffset offset, const FsyncBlock& block, Partial& partial)
{
    const FsyncHeader& header = block.header;
    next_sequence_ = std::max(next_sequence_, header.end_sequence());
    if (!live(header)) {
        partial.seen = 0;
        return;
    }
    commit_at_least_ = std::max(commit_at_least_, header.generation);
    if (block.block_index == 0)
        partial = {header, offset, 0};
    if (block.block_index != partial.seen || !(header == partial.header)) {
        partial.seen = 0;
        return;
    }
    if (++partial.seen < header.block_count())
        return;
    batches_.push_back({partial.header, {{member, partial.offset}}});
    partial.seen = 0;
}

// Brings batches into order, and copies of the same batch together.
void FsyncScan::merge_copies()
{
    const auto key = [](const FsyncHeader& h) {
        return std::tie(h.sequence, h.generation, h.content_checksum, h.record_count, h.content_bytes,
                        h.generation_first, h.generation_before, h.epoch);
    };
    std::sort(batches_.begin(), batches_.end(), [&](const Batch& a, const Batch& b) {
        return std::tuple_cat(key(a.header), std::tie(a.copies[0].member, a.copies[0].offset)) <
               std::tuple_cat(key(b.header), std::tie(b.copies[0].member, b.copies[0].offset));
    });
    std::vector<Batch> merged;
    for (Batch& batch : batches_) {
        if (merged.empty() || !(merged.back().header == batch.header))
            merged.push_back(std::move(batch));
        else
            merged.back().copies.push_back(batch.copies[0]);
    }
    batches_ = std::move(merged);
}

// How many batches from the first on count: those whose records follow each other without a gap, from the
// lowest live sequence on. A gap is the end, because batches are acknowledged in order: what stands behind
// one that no member has was never acknowledged, and without that one it would be no history.
size_t FsyncScan::choose_prefix() const
{
    if (batches_.empty())
        return 0;
    // The lowest live sequence, by the word of those whose generation is the first that is live. When none of
    // them is left their generation had no acknowledged record, and what others have stands behind the gap.
    uint64_t next = 0;
    for (const Batch& batch : batches_) {
        const FsyncHeader& header = batch.header;
        if (header.generation_before > committed_)
            continue;
        if (next != 0 && header.generation_first != next) {
            warn("contradiction about the first record", header.sequence);
            return 0;
        }
        next = header.generation_first;
    }
    for (size_t index = 0; index < batches_.size(); ++index) {
        const FsyncHeader& header = batches_[index].header;
        if (header.sequence != next)
            return index;
        // Two batches that overlap contradict each other; neither can be believed.
        const bool overlap =
            index + 1 < batches_.size() && batches_[index + 1].header.sequence < header.end_sequence();
        if (overlap || (index > 0 && !fits_behind(batches_[index - 1].header, header))) {
            warn("contradiction", header.sequence);
            return index;
        }
        next = header.end_sequence();
    }
    return batches_.size();
}

Result<FsyncContent> FsyncScan::read(const Batch& batch)
{
    AlignedBuffer blocks(size_t{batch.header.block_count()} * kBlockBytes);
    for (const Batch::Copy& copy : batch.copies) {
        BlockDevice* device = members_.device(copy.member);
        if (device == nullptr)
            continue;
        if (!read_device(*device, copy.offset, blocks.span()).ok()) {
            members_.count(copy.member, MemberCounter::kReadErrors);
            continue;
        }
        Result<FsyncContent> content = decode_fsync_batch(blocks.span(), batch.header);
        if (content.ok())
            return content;
        members_.count(copy.member, MemberCounter::kCorruption);
    }
    return Err::kIo;
}

}  // namespace cowraid
