// SPDX-License-Identifier: MIT
// What the ways of writing a flush have in common. Private to flush.cc and
// flush_partial_rows.cc.
#pragma once

#include <span>
#include <vector>

#include "fs/files/extents.h"
#include "fs/files/flush.h"

namespace cowraid {

// A run of dirty blocks of one file.
struct Piece {
    Ref<Inode> inode;
    uint64_t file_block;
    DirtyExtent extent;
};

// Hands out blocks to be written, one after another: the memory of the next, and where it belongs.
class BlockSource {
public:
    virtual ~BlockSource() = default;
    virtual const std::byte* next(const Piece*& piece, uint64_t& file_block) = 0;
};

// Of all pieces.
class BlockStream final : public BlockSource {
public:
    explicit BlockStream(const std::vector<Piece>& pieces) : pieces_(pieces) { }

    const std::byte* next(const Piece*& piece, uint64_t& file_block) override
    {
        piece = &pieces_[piece_];
        file_block = piece->file_block + block_;
        const std::byte* memory = piece->extent.block(block_);
        if (++block_ == piece->extent.block_count) {
            ++piece_;
            block_ = 0;
        }
        return memory;
    }

private:
    const std::vector<Piece>& pieces_;
    size_t piece_ = 0;
    uint32_t block_ = 0;
};

// A contiguous run of one file at contiguous addresses.
struct MappedRun {
    Inode* inode;
    FileExtent extent;
};

// Adds a block to the runs, joined to the last one where it continues it. All are of one block group:
// addresses of two may be neighbours.
void extend_runs(std::vector<MappedRun>& runs, const Piece& piece, uint64_t file_block, VolumeAddress address,
                 Generation generation);
// Puts the runs into their files' mappings and drops their blocks from memory.
Status record_runs(Files& files, FlushBatch& batch, std::span<const MappedRun> runs);

// Fills `regions`, of rows that held nothing, with the next blocks of `source` and records them, about
// `blocks_max` of them at a time.
Status write_in_rows(Files& files, FlushBatch& batch, std::span<const RowRegion> regions, uint64_t blocks_max,
                     BlockSource& source);

// Where blocks go: whole rows, and single blocks of rows that hold others.
struct Placement {
    std::vector<RowRegion> regions;
    std::vector<BlockRun> partial_rows;
    uint64_t partial_row_blocks = 0;
};

// Takes places for `block_count` blocks, up to `join_first` of them in partial rows, the rest in free rows,
// and what these do not take in partial rows again. kNoSpace: `placement` has partial rows for some, and may
// be handed in again.
Status place_blocks(Store& store, uint64_t block_count, uint64_t join_first, TransactionId transaction,
                    Placement& placement);

// Writes the next blocks of `stream` in place into `runs` of partial rows, a flush or less at a time. What a
// row cannot take, because too much of it is lost, goes into free rows, and where there are none into other
// partial rows.
Status write_into_partial_rows(Files& files, FlushBatch& batch, std::span<const BlockRun> runs,
                               BlockStream& stream);

}  // namespace cowraid
