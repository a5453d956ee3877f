// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "raid56/lost_block.h"

namespace cowraid {

// recover_content() for a group without parity.
bool recover_mirrored_content(ArrayState& state, const ArrayGroup& group, const ReadPiece& piece);

// Every copy of a range of blocks of a mirrored group. A copy is named by its lane: all blocks of a lane lie
// on group columns of the same remainder modulo `copies`, so with one data column a lane is one member.
class CopySet {
public:
    CopySet(ArrayState& state, const ArrayGroup& group, VolumeAddress address, uint32_t block_count);

    [[nodiscard]] uint32_t lanes() const { return group_.geometry.copies; }
    // Content of a block, or null when it could not be read.
    [[nodiscard]] const std::byte* block(uint32_t lane, uint32_t block) const;
    [[nodiscard]] FaultCause cause(uint32_t lane, uint32_t block) const { return cell(lane, block).cause; }
    // The lane's blocks in order; empty when one could not be read.
    [[nodiscard]] std::vector<const std::byte*> whole(uint32_t lane) const;
    [[nodiscard]] BlockPlace place(uint32_t block) const;
    [[nodiscard]] uint32_t copy(uint32_t lane, uint32_t block) const;

private:
    struct Cell {
        bool read = false;
        FaultCause cause = FaultCause::kMissing;
    };
    [[nodiscard]] const Cell& cell(uint32_t lane, uint32_t block) const
    {
        return cells_[size_t{lane} * block_count_ + block];
    }

    const ArrayGroup& group_;
    uint64_t offset_;
    uint32_t block_count_;
    std::vector<Cell> cells_;
    AlignedBuffer memory_;
};

// Leaves in the piece's memory what its ContentCheck accepts of the copies, or of a mixture of their blocks.
// False: nothing.
[[nodiscard]] bool search_copies(const ReadPiece& piece, const CopySet& copies);

}  // namespace cowraid
