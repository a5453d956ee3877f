// SPDX-License-Identifier: MIT
// What the ways of writing a flush have in common. Private to flush.cc and
// flush_partial_rows.cc.
#pragma once

#include <span>
#include <vector>

#include "fs/files/extents.h"
#include "fs/files/flush.h"
#include "fs/files/frames.h"

namespace cowraid {

// A block to be written, and where it belongs.
struct SourceBlock {
    const std::byte* memory = nullptr;
    Inode* inode = nullptr;
    uint64_t file_block = 0;  // of a block that is stored as it is
    Frame* frame = nullptr;  // or else the frame that it is a block of
    uint32_t index = 0;  // which one
};

// Hands out blocks to be written, one after another.
class BlockSource {
public:
    virtual ~BlockSource() = default;
    virtual SourceBlock next() = 0;
    // All that was handed out is recorded: nobody uses its memory any more.
    virtual void let_go() { }
};

// An extent to be recorded. kReserved: a hole, but what is reserved there stays so.
struct MappedRun {
    Inode* inode;
    FileExtent extent;
};

// Adds a block that got a place to the runs, joined to the last one where it continues it; a frame when all
// its blocks have one. All that are joined are of one block group: addresses of two may be neighbours.
void extend_runs(const Array& array, std::vector<MappedRun>& runs, const SourceBlock& block,
                 VolumeAddress address, Generation generation);
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
                               BlockSource& stream);

}  // namespace cowraid
