// SPDX-License-Identifier: MIT
#include "journal/fsync_scan.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/buffer.h"
#include "base/log.h"

namespace cowraid {

namespace {

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

FsyncScan::FsyncScan(MemberSet& members, const Superblock& superblock, Generation committed)
    : members_(members), superblock_(superblock), committed_(committed), commit_at_least_(committed)
{
    RingReader reader(members, LogKind::kFsync);
    for (const MemberRecord& record : superblock.members)
        // A member that commits have skipped may hold records that the others have numbered anew.
        all_read_ = record.state == MemberState::kPresent && reader.add(record) && all_read_;
    std::map<MemberId, Partial> partials;
    for (RingReader::Block block; reader.next(block);)
        take_block(block, partials[block.record->id]);
    all_read_ = all_read_ && !reader.any_failed();
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

void FsyncScan::take_block(const RingReader::Block& read, Partial& partial)
{
    const Result<FsyncBlock> block = decode_fsync_block(read.bytes, superblock_.volume_uuid);
    if (!block.ok()) {
        all_read_ = all_read_ && block.err() != Err::kCorrupt;
        partial.seen = 0;
        return;
    }
    const FsyncHeader& header = block->header;
    next_sequence_ = std::max(next_sequence_, header.end_sequence());
    if (!live(header)) {
        partial.seen = 0;
        return;
    }
    commit_at_least_ = std::max(commit_at_least_, header.generation);
    if (block->block_index == 0)
        partial = {header, read.offset, 0};
    if (block->block_index != partial.seen || !(header == partial.header)) {
        partial.seen = 0;
        return;
    }
    if (++partial.seen < header.block_count())
        return;
    batches_.push_back({partial.header, {{read.record->id, partial.offset}}});
    partial.seen = 0;
}

// Brings batches into order, and copies of the same batch together.
void FsyncScan::merge_copies()
{
    const auto key = [](const FsyncHeader& h) {
        return std::tie(h.sequence, h.generation, h.content_checksum, h.record_count, h.content_bytes,
                        h.generation_first, h.generation_before, h.epoch, h.acknowledged);
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
// lowest live sequence on. A gap is the end: batches are acknowledged in order, so that what stands behind
// one that was never acknowledged was not either, and without that one it would be no history.
size_t FsyncScan::choose_prefix()
{
    // The lowest live sequence, by the word of those whose generation is the first that is live. When none of
    // them is left what others have stands behind the gap.
    for (const Batch& batch : batches_) {
        const FsyncHeader& header = batch.header;
        if (header.generation_before > committed_)
            continue;
        if (prefix_end_ != 0 && header.generation_first != prefix_end_) {
            warn("contradiction about the first record", header.sequence);
            return 0;
        }
        prefix_end_ = header.generation_first;
    }
    for (size_t index = 0; index < batches_.size(); ++index) {
        const FsyncHeader& header = batches_[index].header;
        if (header.sequence != prefix_end_)
            return index;
        // Two batches that overlap contradict each other; neither can be believed.
        const bool overlap =
            index + 1 < batches_.size() && batches_[index + 1].header.sequence < header.end_sequence();
        if (overlap || (index > 0 && !fits_behind(batches_[index - 1].header, header))) {
            warn("contradiction", header.sequence);
            return index;
        }
        prefix_end_ = header.end_sequence();
    }
    return batches_.size();
}

bool FsyncScan::lost_acknowledged() const
{
    return std::any_of(
        batches_.begin() + static_cast<std::ptrdiff_t>(prefix_), batches_.end(), [&](const Batch& batch) {
            // The last record of the generation before is live, and it is not there.
            const uint64_t lost = prefix_end_ != 0 ? prefix_end_ : batch.header.generation_first - 1;
            return batch.header.acknowledged > lost;
        });
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
