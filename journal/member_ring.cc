// SPDX-License-Identifier: MIT
#include "journal/member_ring.h"

#include <algorithm>
#include <cstring>

namespace cowraid {

namespace {

// Memory for pieces of all rings; of one ring, between these.
constexpr uint64_t kReadBytes = 32 * kMiB;
constexpr uint64_t kPieceBytesMin = 64 * kKiB;
constexpr uint64_t kPieceBytesMax = 1 * kMiB;

bool any_overlaps(std::span<const MemberRing::Segment> segments, uint32_t first_block, uint32_t block_count)
{
    return std::any_of(segments.begin(), segments.end(), [=](const MemberRing::Segment& segment) {
        return segment.first_block < first_block + block_count &&
               first_block < segment.first_block + segment.block_count;
    });
}

}  // namespace

MemberRing::MemberRing(const MemberRecord& record, LogKind kind) : member_(record.id)
{
    const bool intent = kind == LogKind::kIntent;
    offset_ = {intent ? record.intent_log_offset : record.fsync_log_offset};
    const uint64_t bytes = intent ? record.intent_log_bytes : record.fsync_log_bytes;
    block_count_ = static_cast<uint32_t>(bytes / kBlockBytes);
}

bool MemberRing::find_place(uint32_t wanted, uint32_t& first_block) const
{
    const bool fits_before_end = wanted <= block_count_ - head_;
    first_block = fits_before_end ? head_ : 0;
    if (any_overlaps(held_, first_block, wanted))
        return false;
    if (segments_.empty())
        return wanted <= block_count_;
    const uint32_t tail = segments_.front().first_block;
    if (head_ > tail)
        return fits_before_end || wanted <= tail;
    return wanted <= tail - head_;
}

void MemberRing::take(uint32_t first_block, uint32_t block_count, uint64_t last)
{
    segments_.push_back({first_block, block_count, last});
    head_ = first_block + block_count;
}

bool MemberRing::hold(DeviceOffset first, uint64_t bytes, uint64_t limit)
{
    const Segment held{block_of(first), static_cast<uint32_t>(bytes / kBlockBytes), 0};
    for (const Segment& segment : segments_)
        if (segment.last >= limit && any_overlaps(std::span(&segment, 1), held.first_block, held.block_count))
            return false;
    held_.push_back(held);
    return true;
}

void MemberRing::release(DeviceOffset first)
{
    std::erase_if(held_, [&](const Segment& held) { return held.first_block == block_of(first); });
}

uint64_t MemberRing::free_below(uint64_t limit)
{
    uint64_t freed = 0;
    for (; !segments_.empty() && segments_.front().last < limit; ++freed)
        segments_.pop_front();
    return freed;
}

bool RingReader::add(const MemberRecord& record)
{
    BlockDevice* device = members_.device(record.id);
    if (device != nullptr)
        readings_.push_back({.record = &record, .device = device, .ring = MemberRing(record, kind_)});
    turn_ = readings_.size();
    return device != nullptr;
}

// The pieces behind those that were read, of every ring that is as long. False: none is.
bool RingReader::read_pieces()
{
    std::vector<IoRequest> requests;
    std::vector<Reading*> asked;
    const uint64_t share = kReadBytes / std::max<size_t>(readings_.size(), 1);
    const auto piece_blocks =
        static_cast<uint32_t>(std::clamp(share, kPieceBytesMin, kPieceBytesMax) / kBlockBytes);
    piece_block_ = next_piece_block_;
    next_piece_block_ += piece_blocks;
    for (Reading& reading : readings_) {
        const uint32_t blocks =
            reading.ring.block_count() - std::min(reading.ring.block_count(), piece_block_);
        if (reading.buffer.size() == 0)
            reading.buffer = AlignedBuffer(size_t{piece_blocks} * kBlockBytes);
        reading.piece = {reading.buffer.data(), size_t{std::min(blocks, piece_blocks)} * kBlockBytes};
        if (blocks == 0)
            continue;
        requests.push_back({.kind = IoKind::kRead,
                            .device = reading.device,
                            .offset = reading.ring.offset_of(piece_block_),
                            .vectors = {&reading.piece, 1}});
        asked.push_back(&reading);
    }
    run_io(requests);
    for (size_t index = 0; index < requests.size(); ++index) {
        asked[index]->failed = !requests[index].result.ok();
        any_failed_ = any_failed_ || asked[index]->failed;
        if (asked[index]->failed)
            members_.count(asked[index]->record->id, MemberCounter::kReadErrors);
    }
    turn_ = 0;
    return !asked.empty();
}

bool RingReader::next(Block& block)
{
    while (turn_ == readings_.size() || piece_at_ == readings_[turn_].piece.iov_len) {
        piece_at_ = 0;
        if (turn_ < readings_.size())
            ++turn_;
        else if (!read_pieces())
            return false;
    }
    Reading& reading = readings_[turn_];
    const std::span<std::byte> bytes = reading.buffer.span().subspan(piece_at_, kBlockBytes);
    const auto number = piece_block_ + static_cast<uint32_t>(piece_at_ / kBlockBytes);
    block = {reading.record, number, reading.ring.offset_of(number), bytes};
    block.unreadable = reading.failed && !read_device(*reading.device, block.offset, bytes).ok();
    if (block.unreadable)
        std::memset(bytes.data(), 0, bytes.size());
    piece_at_ += kBlockBytes;
    return true;
}

}  // namespace cowraid
