// SPDX-License-Identifier: MIT
// Recovery of pieces without checksums per block (tree nodes) in mirrored groups: only the whole can be asked
// whether it is right, so whole copies are tried, then mixtures of their blocks.
#include "raid56/content.h"

#include <cstring>

#include "base/checksum.h"
#include "raid56/repair.h"

namespace cowraid {

namespace {

// Rewrites every copy of a block that differs from the accepted content.
void repair_copies(ArrayState& state, const ArrayGroup& group, const ReadPiece& piece, const CopySet& copies)
{
    std::vector<RepairItem> items;
    for (uint32_t block = 0; block < piece.block_count; ++block) {
        const std::byte* right = piece.memory + size_t{block} * kBlockBytes;
        for (uint32_t lane = 0; lane < copies.lanes(); ++lane) {
            const std::byte* have = copies.block(lane, block);
            if (have == nullptr ? copies.cause(lane, block) == FaultCause::kMissing
                                : std::memcmp(have, right, kBlockBytes) == 0)
                continue;
            items.push_back({
                .group = &group,
                .place = copies.place(block),
                .copy = copies.copy(lane, block),
                .content = right,
                .checksum = checksum_of(right, kBlockBytes),
                .cause = have == nullptr ? FaultCause::kReadError : FaultCause::kWrong,
                .seen = have == nullptr ? 0 : checksum_of(have, kBlockBytes),
                .authority = RepairItem::Authority::kCaller,
            });
        }
    }
    repair_blocks(state, items);
}

// No copy is right: each is one fault of the member it begins on, and every unreadable block another.
void count_copies(ArrayState& state, const ArrayGroup& group, const ReadPiece& piece, const CopySet& copies)
{
    for (uint32_t lane = 0; lane < copies.lanes(); ++lane) {
        if (!copies.whole(lane).empty())
            count_fault(state, group, copies.place(0), copies.copy(lane, 0), FaultCause::kWrong);
        for (uint32_t block = 0; block < piece.block_count; ++block)
            if (copies.block(lane, block) == nullptr)
                count_fault(state, group, copies.place(block), copies.copy(lane, block),
                            copies.cause(lane, block));
    }
}

// Blocks that at least one member could not deliver as they must be.
uint32_t faulty_blocks(const ReadPiece& piece, const CopySet& copies)
{
    uint32_t count = 0;
    for (uint32_t block = 0; block < piece.block_count; ++block) {
        const std::byte* right = piece.memory + size_t{block} * kBlockBytes;
        bool faulty = false;
        for (uint32_t lane = 0; lane < copies.lanes() && !faulty; ++lane) {
            const std::byte* have = copies.block(lane, block);
            faulty = have == nullptr || std::memcmp(have, right, kBlockBytes) != 0;
        }
        count += faulty;
    }
    return count;
}

}  // namespace

bool recover_mirrored_content(ArrayState& state, const ArrayGroup& group, const ReadPiece& piece)
{
    const CopySet copies(state, group, piece.address, piece.block_count);
    if (!search_copies(piece, copies)) {
        count_copies(state, group, piece, copies);
        return false;
    }
    bump(state.counters.blocks_reconstructed, faulty_blocks(piece, copies));
    repair_copies(state, group, piece, copies);
    return true;
}

}  // namespace cowraid
