// SPDX-License-Identifier: MIT
// One read: resolve pieces to members, fetch everything as one batch, verify every block, and hand what is
// lost to recovery. The healthy path ends after the verification.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "base/clock.h"
#include "raid56/io_plan.h"
#include "raid56/lost_block.h"

namespace cowraid {

namespace {

// A mirrored member is read in runs of this length before the next one takes over: long enough for large
// requests, short enough that one reader keeps all copies busy.
constexpr uint64_t kCopyRunBytes = kMiB;

// A read that is tried again waits for up to 64 times the deadline each time.
constexpr uint32_t kReadRoundMax = 6;
constexpr uint64_t kReadPauseMs = 10;

// The copy to read first. Copy c of the t-th stripe of a set lies on its column (c + t) % copies, so choosing
// a column per run of stripes makes each member's share of a run contiguous.
uint32_t preferred_copy(const Geometry& geometry, uint64_t stripe)
{
    if (geometry.copies == 1)
        return 0;
    const uint64_t turn = geometry.turn_of(stripe);
    const uint64_t run = turn * geometry.chunk_bytes / kCopyRunBytes;
    return static_cast<uint32_t>((run + geometry.copies - turn % geometry.copies) % geometry.copies);
}

// How many copies of the block can be asked and lack nothing.
uint32_t copies_there(const ArrayState& state, const ArrayGroup& group, const BlockPlace& place)
{
    uint32_t there = 0;
    for (uint32_t copy = 0; copy < group.geometry.copies; ++copy) {
        const BlockLocation at = locate_block(state, group, place, copy);
        there += at.device != nullptr && !at.stale ? 1 : 0;
    }
    return there;
}

class ReadCall {
public:
    // Pieces that come to nothing because members are slow have the result kWouldWait, unless it waits for
    // all.
    // `round`, unless it is the first: of these pieces once more, with more time.
    ReadCall(ArrayState& state, std::span<ReadPiece> pieces, Patience patience, AlignedBuffer* lease,
             uint32_t round = 0)
        : state_(state),
          pieces_(pieces),
          patience_(patience),
          lease_(lease),
          round_(round),
          list_(state.groups.list()),
          piece_groups_(pieces.size()),
          plan_(IoKind::kRead, state.members)
    {
    }
    void run();

private:
    void resolve(uint32_t index);
    void fetch();
    void plan_piece(uint32_t index);
    void plan_chunk(uint32_t index, const BlockPlace& place, uint32_t block_count, std::byte* memory);
    void lose(uint32_t index, std::byte* memory, uint32_t copy, FaultCause cause, Checksum seen);
    void examine(const IoPart& part);
    [[nodiscard]] KnownBlocks known_blocks();
    void recover();
    void give_up(const LostBlock& lost);
    void finish();

    [[nodiscard]] uint32_t block_at(uint32_t index, const std::byte* memory) const
    {
        return static_cast<uint32_t>((memory - pieces_[index].memory) / kBlockBytes);
    }

    ArrayState& state_;
    std::span<ReadPiece> pieces_;
    const Patience patience_;
    AlignedBuffer* lease_;  // null: no part of it is given up
    const uint32_t round_;
    Ref<const GroupList> list_;  // keeps the groups alive
    std::vector<const ArrayGroup*> piece_groups_;  // null: no such address
    IoPlan plan_;
    std::vector<LostBlock> lost_;
};

void ReadCall::resolve(uint32_t index)
{
    ReadPiece& piece = pieces_[index];
    CW_ASSERT(piece.checksums != nullptr);
    if (round_ > 0 && piece.result != Status(Err::kWouldWait))
        return;
    piece.result = Err::kOk;
    piece.bad_blocks = 0;
    const ArrayGroup* group = list_->find(piece.address);
    if (group == nullptr || !group->has_data(piece.address, piece.block_count)) {
        piece.result = Err::kInvalid;
        return;
    }
    piece_groups_[index] = group;
    const uint32_t missing = state_.missing_columns(*group);
    if (missing > 0)
        plan_.forbid_bridges();  // parity will be needed
    if (missing >= group->tolerance && group->geometry.parity > 0)
        lease_ = nullptr;  // there is nothing but what is read
    if (round_ == 0)
        bump(state_.counters.blocks_read, piece.block_count);
    plan_piece(index);
}

// Cuts the piece at chunk borders.
void ReadCall::plan_piece(uint32_t index)
{
    const ReadPiece& piece = pieces_[index];
    const ArrayGroup& group = *piece_groups_[index];
    const Geometry& geometry = group.geometry;
    uint64_t offset = piece.address - group.record.address;
    std::byte* memory = piece.memory;
    uint32_t left = piece.block_count;
    while (left > 0) {
        const BlockPlace place = place_of(geometry, offset);
        const uint32_t count = std::min(left, geometry.rows() - place.row);
        plan_chunk(index, place, count, memory);
        offset += uint64_t{count} * kBlockBytes;
        memory += uint64_t{count} * kBlockBytes;
        left -= count;
    }
}

void ReadCall::plan_chunk(uint32_t index, const BlockPlace& place, uint32_t block_count, std::byte* memory)
{
    const ArrayGroup& group = *piece_groups_[index];
    const uint32_t first = preferred_copy(group.geometry, place.stripe);
    BlockLocation location;
    bool slow = false;
    if (lease_ != nullptr && group.geometry.parity == 0 && copies_there(state_, group, place) < 2)
        lease_ = nullptr;
    for (uint32_t i = 0; i < group.geometry.copies; ++i) {
        const uint32_t number = (first + i) % group.geometry.copies;
        const BlockLocation copy = locate_block(state_, group, place, number);
        const bool copy_slow = does_without(state_, patience_, group, place, number);
        const bool better = slow != copy_slow ? slow : location.stale && !copy.stale;
        if (location.device == nullptr || (copy.device != nullptr && better)) {
            location = copy;
            slow = copy_slow;
        }
        if (location.device != nullptr && !location.stale && !slow)
            break;
    }
    if (location.device == nullptr || slow) {
        plan_.forbid_bridges();
        for (uint32_t i = 0; i < block_count; ++i)
            lose(index, memory + size_t{i} * kBlockBytes, first,
                 slow ? FaultCause::kLate : FaultCause::kMissing, 0);
        return;
    }
    plan_.add({location.member,
               location.device,
               location.offset,
               memory,
               uint64_t{block_count} * kBlockBytes,
               index,
               {}});
}

void ReadCall::lose(uint32_t index, std::byte* memory, uint32_t copy, FaultCause cause, Checksum seen)
{
    const ReadPiece& piece = pieces_[index];
    const ArrayGroup* group = piece_groups_[index];
    const uint32_t block = block_at(index, memory);
    const uint64_t offset = piece.address - group->record.address + uint64_t{block} * kBlockBytes;
    lost_.push_back({
        .group = group,
        .place = place_of(group->geometry, offset),
        .copy = copy,
        .piece = index,
        .memory = memory,
        .wanted = piece.checksums[block],
        .source = piece.source,
        .cause = cause,
        .seen = seen,
        .untried = cause == FaultCause::kLate,
    });
}

// Which copy of `place` the member holds.
uint32_t copy_on(const ArrayGroup& group, const BlockPlace& place, MemberId member)
{
    for (uint32_t copy = 0; copy < group.geometry.copies; ++copy)
        if (group.record.columns[group_column(group.geometry, place.stripe, place.column, copy)].member ==
            member)
            return copy;
    CW_ASSERT(false);
}

void ReadCall::examine(const IoPart& part)
{
    const ReadPiece& piece = pieces_[part.owner];
    const ArrayGroup& group = *piece_groups_[part.owner];
    for (uint64_t at = 0; at < part.bytes; at += kBlockBytes) {
        std::byte* memory = part.memory + at;
        const uint32_t block = block_at(part.owner, memory);
        FaultCause cause = FaultCause::kWrong;
        Checksum seen = 0;
        if (part.result.ok()) {
            seen = checksum_of(memory, kBlockBytes);
            if (seen == piece.checksums[block])
                continue;
        } else {
            cause = part.result.err() == Err::kMemberGone  ? FaultCause::kMissing
                    : part.result.err() == Err::kWouldWait ? FaultCause::kLate
                                                           : FaultCause::kReadError;
        }
        const uint64_t offset = piece.address - group.record.address + uint64_t{block} * kBlockBytes;
        lose(part.owner, memory, copy_on(group, place_of(group.geometry, offset), part.member), cause, seen);
    }
}

// Everything read in this call that is verified: the pieces without their lost blocks.
KnownBlocks ReadCall::known_blocks()
{
    std::sort(lost_.begin(), lost_.end(), [](const LostBlock& a, const LostBlock& b) {
        return a.piece != b.piece ? a.piece < b.piece : a.memory < b.memory;
    });
    KnownBlocks known;
    auto lost = lost_.begin();
    for (uint32_t index = 0; index < pieces_.size(); ++index) {
        const ReadPiece& piece = pieces_[index];
        if (piece_groups_[index] == nullptr)
            continue;
        uint32_t begin = 0;
        for (; lost != lost_.end() && lost->piece == index; ++lost) {
            const uint32_t block = block_at(index, lost->memory);
            known.add(piece.address + uint64_t{begin} * kBlockBytes, block - begin,
                      piece.memory + size_t{begin} * kBlockBytes);
            begin = block + 1;
        }
        known.add(piece.address + uint64_t{begin} * kBlockBytes, piece.block_count - begin,
                  piece.memory + size_t{begin} * kBlockBytes);
    }
    known.sort();
    return known;
}

void ReadCall::recover()
{
    if (lost_.empty())
        return;
    const KnownBlocks known = known_blocks();
    const auto mirrored = std::partition(
        lost_.begin(), lost_.end(), [](const LostBlock& lost) { return lost.group->geometry.parity == 0; });
    recover_from_copies(state_, {lost_.begin(), mirrored}, patience_, 1U << round_);
    recover_from_parity(state_, known, {mirrored, lost_.end()}, patience_, 1U << round_);
}

void ReadCall::give_up(const LostBlock& lost)
{
    ReadPiece& piece = pieces_[lost.piece];
    piece.result = Err::kTooManyFaults;
    const VolumeAddress address = address_of(*lost.group, lost.place);
    const auto block = static_cast<uint32_t>((address - piece.address) / kBlockBytes);
    piece.first_bad = piece.bad_blocks == 0 ? block : std::min(piece.first_bad, block);
    piece.last_bad = piece.bad_blocks == 0 ? block : std::max(piece.last_bad, block);
    ++piece.bad_blocks;
    std::memset(lost.memory, 0, kBlockBytes);  // no wrong bytes, not even beside an error
    bump(state_.counters.blocks_unrecoverable, 1);
    if (BlockVerifier* verifier = state_.verifier.load(std::memory_order_acquire); verifier != nullptr)
        verifier->unrecoverable(address);
}

void ReadCall::finish()
{
    for (const LostBlock& lost : lost_)
        if (!lost.recovered && lost.untried)
            pieces_[lost.piece].result = Err::kWouldWait;
    for (const LostBlock& lost : lost_) {
        if (lost.recovered)
            bump(state_.counters.blocks_reconstructed, 1);
        else if (pieces_[lost.piece].result != Status(Err::kWouldWait))
            give_up(lost);
    }
}

// What is read in one batch. Where members are late it is in other memory afterwards.
void ReadCall::fetch()
{
    if (lease_ == nullptr) {
        plan_.run();
        return;
    }
    const std::byte* const old = lease_->data();
    plan_.may_leave(*lease_, 1U << round_);
    plan_.run();
    if (lease_->data() == old)
        return;
    for (ReadPiece& piece : pieces_)
        piece.memory = lease_->data() + (piece.memory - old);
    for (LostBlock& lost : lost_)
        lost.memory = lease_->data() + (lost.memory - old);
}

void ReadCall::run()
{
    plan_.reserve(pieces_.size());
    for (uint32_t index = 0; index < pieces_.size(); ++index)
        resolve(index);
    fetch();
    for (const IoPart& part : plan_.parts())
        examine(part);
    recover();
    finish();
}

}  // namespace

// Members that are slow are waited for only where nothing can be had without them. Which of several answers
// first nobody knows: who can give its memory away asks anew until one does, with twice as much patience.
Status Array::read(std::span<ReadPiece> pieces, AlignedBuffer* lease)
{
    const auto waits = [](const ReadPiece& piece) {
        return piece.result == Status(Err::kWouldWait);
    };
    uint64_t began_ms = monotonic_ms();
    ReadCall(*state_, pieces, Patience::kDeadline, lease).run();
    for (uint32_t round = 1; lease != nullptr && std::any_of(pieces.begin(), pieces.end(), waits);
         round = std::min(round + 1, kReadRoundMax)) {
        if (monotonic_ms() < began_ms + kReadPauseMs)  // nobody was asked that does not answer
            usleep(static_cast<useconds_t>((kReadPauseMs << round) * 1000));
        began_ms = monotonic_ms();
        ReadCall(*state_, pieces, Patience::kDeadline, lease, round).run();
    }
    Status first;
    for (ReadPiece& piece : pieces) {
        for (const Patience patience : {Patience::kForTheRest, Patience::kForAll})
            if (waits(piece))
                ReadCall(*state_, std::span(&piece, 1), patience, nullptr, kReadRoundMax).run();
        if (first.ok())
            first = piece.result;
    }
    return first;
}

}  // namespace cowraid
