// SPDX-License-Identifier: MIT
// Recovery of pieces without checksums per block in parity groups. Where the verifier knows what a block of
// the piece must be, that block is recovered like any other; for the rest the solutions of its row are
// candidates, and the whole piece is asked.
#include <algorithm>
#include <cstring>
#include <optional>

#include "base/checksum.h"
#include "raid56/content.h"
#include "raid56/content_search.h"
#include "raid56/io_plan.h"
#include "raid56/parity.h"
#include "raid56/repair.h"

namespace cowraid {

namespace {

// The columns of one row, read apart from the one to be solved.
class RowReading {
public:
    RowReading(ArrayState& state, const ArrayGroup& group, const BlockPlace& place);
    // The block as every choice of inputs has it.
    [[nodiscard]] std::vector<AlignedBuffer> solutions();

private:
    void solve_without(uint32_t left_out, std::byte* output);

    const ArrayGroup& group_;
    uint32_t wanted_;
    AlignedBuffer memory_;
    std::vector<std::byte*> columns_;
    std::vector<bool> readable_;
};

RowReading::RowReading(ArrayState& state, const ArrayGroup& group, const BlockPlace& place)
    : group_(group),
      wanted_(place.column),
      memory_(size_t{group.geometry.columns()} * kBlockBytes),
      readable_(group.geometry.columns())
{
    IoPlan plan(IoKind::kRead, state.members);
    for (uint32_t column = 0; column < readable_.size(); ++column) {
        columns_.push_back(memory_.data() + size_t{column} * kBlockBytes);
        const BlockLocation location = locate_block(state, group, {place.stripe, column, place.row}, 0);
        if (column != wanted_ && location.device != nullptr)
            plan.add({location.member,
                      location.device,
                      location.offset,
                      columns_[column],
                      kBlockBytes,
                      column,
                      {}});
    }
    plan.run();
    for (const IoPart& part : plan.parts())
        readable_[part.owner] = part.result.ok();
}

void RowReading::solve_without(uint32_t left_out, std::byte* output)
{
    std::vector<uint32_t> erased;
    for (uint32_t column = 0; column < readable_.size(); ++column)
        if (column == left_out || !readable_[column])
            erased.push_back(column);
    columns_[wanted_] = output;
    parity_recover_wanted(columns_, group_.geometry.data_columns, erased, std::span(&wanted_, 1),
                          kBlockBytes);
}

std::vector<AlignedBuffer> RowReading::solutions()
{
    static_assert(kMaxParity == 2, "with more parity several readable columns can be left out at once");
    const auto readable = static_cast<uint32_t>(std::count(readable_.begin(), readable_.end(), true));
    std::vector<AlignedBuffer> solutions;
    if (readable == group_.geometry.data_columns) {
        solve_without(wanted_, solutions.emplace_back(kBlockBytes).data());
    } else if (readable > group_.geometry.data_columns) {
        for (uint32_t column = 0; column < readable_.size(); ++column)
            if (readable_[column])
                solve_without(column, solutions.emplace_back(kBlockBytes).data());
    }
    return solutions;
}

// The state of a piece under recovery.
class ParityContent {
public:
    ParityContent(ArrayState& state, const ArrayGroup& group, const ReadPiece& piece,
                  std::span<const UnreadBlock> unread);
    bool recover();

private:
    [[nodiscard]] bool recover_expected();
    [[nodiscard]] bool search_unknown();
    void repair_unknown();
    [[nodiscard]] std::byte* memory(uint32_t block) const
    {
        return piece_.memory + size_t{block} * kBlockBytes;
    }
    [[nodiscard]] BlockPlace place(uint32_t block) const
    {
        return place_of(group_.geometry,
                        piece_.address - group_.record.address + uint64_t{block} * kBlockBytes);
    }

    ArrayState& state_;
    const ArrayGroup& group_;
    const ReadPiece& piece_;
    std::vector<std::optional<FaultCause>> faults_;  // of blocks that could not be read
    struct Unknown {
        uint32_t block;
        AlignedBuffer as_read;
    };
    std::vector<Unknown> unknown_;  // blocks of which the verifier knows nothing
};

ParityContent::ParityContent(ArrayState& state, const ArrayGroup& group, const ReadPiece& piece,
                             std::span<const UnreadBlock> unread)
    : state_(state), group_(group), piece_(piece), faults_(piece.block_count)
{
    for (const UnreadBlock& block : unread)
        faults_[block.block] = block.cause;
}

// False: a block that the verifier knows is beyond recovery.
bool ParityContent::recover_expected()
{
    std::vector<BlockExpectation> expected(piece_.block_count);
    if (BlockVerifier* verifier = state_.verifier.load(std::memory_order_acquire); verifier != nullptr)
        verifier->expect(piece_.address, expected);
    KnownBlocks known;
    std::vector<LostBlock> lost;
    for (uint32_t block = 0; block < piece_.block_count; ++block) {
        if (!expected[block].known) {
            unknown_.push_back({block, AlignedBuffer(kBlockBytes)});
            std::memcpy(unknown_.back().as_read.data(), memory(block), kBlockBytes);
            continue;
        }
        const Checksum seen = faults_[block] ? 0 : checksum_of(memory(block), kBlockBytes);
        if (!faults_[block] && seen == expected[block].checksum) {
            known.add(piece_.address + uint64_t{block} * kBlockBytes, 1, memory(block));
            continue;
        }
        lost.push_back({
            .group = &group_,
            .place = place(block),
            .memory = memory(block),
            .wanted = expected[block].checksum,
            .cause = faults_[block].value_or(FaultCause::kWrong),
            .seen = seen,
        });
    }
    known.sort();
    recover_from_parity(state_, known, lost);
    const auto recovered =
        std::count_if(lost.begin(), lost.end(), [](const LostBlock& b) { return b.recovered; });
    bump(state_.counters.blocks_reconstructed, static_cast<uint64_t>(recovered));
    return static_cast<size_t>(recovered) == lost.size();
}

bool ParityContent::search_unknown()
{
    ContentSearch search(piece_);
    std::vector<std::vector<AlignedBuffer>> solutions;  // keeps the candidates
    size_t next = 0;
    for (uint32_t block = 0; block < piece_.block_count; ++block) {
        if (next == unknown_.size() || unknown_[next].block != block) {
            search.offer(block, memory(block));
            continue;
        }
        if (!faults_[block])
            search.offer(block, unknown_[next].as_read.data());
        ++next;
        solutions.push_back(RowReading(state_, group_, place(block)).solutions());
        for (const AlignedBuffer& solution : solutions.back())
            search.offer(block, solution.data());
    }
    return search.run();
}

void ParityContent::repair_unknown()
{
    std::vector<RepairItem> items;
    for (const Unknown& unknown : unknown_) {
        const std::byte* right = memory(unknown.block);
        const std::optional<FaultCause> fault = faults_[unknown.block];
        if (!fault && std::memcmp(unknown.as_read.data(), right, kBlockBytes) == 0)
            continue;
        bump(state_.counters.blocks_reconstructed, 1);
        if (fault == FaultCause::kMissing)
            continue;
        items.push_back({
            .group = &group_,
            .place = place(unknown.block),
            .content = right,
            .checksum = checksum_of(right, kBlockBytes),
            .cause = fault.value_or(FaultCause::kWrong),
            .seen = fault ? 0 : checksum_of(unknown.as_read.data(), kBlockBytes),
            .authority = RepairItem::Authority::kVerifier,
        });
    }
    repair_blocks(state_, items);
}

bool ParityContent::recover()
{
    if (!recover_expected())
        return false;
    if (unknown_.empty())
        return piece_.check->matches({piece_.memory, size_t{piece_.block_count} * kBlockBytes});
    if (!search_unknown())
        return false;
    repair_unknown();
    return true;
}

}  // namespace

bool recover_content(ArrayState& state, const ArrayGroup& group, const ReadPiece& piece,
                     std::span<const UnreadBlock> unread)
{
    if (group.geometry.parity == 0)
        return recover_mirrored_content(state, group, piece);
    return ParityContent(state, group, piece, unread).recover();
}

}  // namespace cowraid
