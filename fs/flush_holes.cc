// SPDX-License-Identifier: MIT
// The part of a flush that goes into rows that hold other blocks.
#include <algorithm>

#include "base/log.h"
#include "fs/flush_parts.h"

namespace cowraid {

namespace {

// Blocks handed to the array at a time.
constexpr size_t kSliceBlocks = 2048;

struct PlacedBlock {
    const Piece* piece;
    uint64_t file_block;
    const std::byte* memory;
    VolumeAddress address;
};

// Contiguous in memory and on the volume.
std::vector<BlockWrite> writes_of(std::span<const PlacedBlock> blocks)
{
    std::vector<BlockWrite> writes;
    for (const PlacedBlock& block : blocks) {
        if (!writes.empty()) {
            BlockWrite& last = writes.back();
            const uint64_t bytes = uint64_t{last.block_count} * kBlockBytes;
            if (last.memory + bytes == block.memory && last.address + bytes == block.address) {
                ++last.block_count;
                continue;
            }
        }
        writes.push_back({block.address, 1, block.memory, {}});
    }
    return writes;
}

Status free_places(FilesystemCore& core, TransactionId transaction, std::span<const PlacedBlock> blocks)
{
    for (const PlacedBlock& block : blocks)
        CW_TRY(core.allocator.free_blocks(block.address, 1, transaction));
    return {};
}

// Puts blocks that rows could not take into rows that hold nothing. kNoSpace: there are none, nothing was
// done.
Status write_in_rows(FilesystemCore& core, FlushBatch& batch, const View& view, Generation generation,
                     std::span<const PlacedBlock> blocks)
{
    std::vector<RowRegion> regions;
    CW_TRY(core.allocator.allocate(Stream::kData, 1, blocks.size(), batch.transaction->id, regions));
    CW_TRY(free_places(core, batch.transaction->id, blocks));
    size_t next = 0;
    for (const RowRegion& region : regions)
        for (const RowRegion& part : split_region(region, kSliceBlocks)) {
            std::vector<const std::byte*> memory(part.block_count(), nullptr);
            std::vector<MappedRun> runs;
            for (uint64_t i = 0; i < part.used_blocks; ++i, ++next) {
                const PlacedBlock& block = blocks[next];
                memory[i] = block.memory;
                extend_runs(runs, *block.piece, block.file_block, part.block_address(i), generation);
            }
            CW_TRY(write_region(core, *batch.transaction, part, memory));
            CW_TRY(record_runs(core, batch, view, runs));
        }
    return {};
}

// Another place for every block that could not be written where it was to go. The old one is freed: no file
// refers to it.
Status place_again(FilesystemCore& core, TransactionId transaction, std::vector<PlacedBlock>& blocks)
{
    std::vector<BlockRun> holes;
    // First, so that the same blocks are not offered again.
    const uint64_t got = core.allocator.allocate_holes(blocks.size(), transaction, holes);
    CW_TRY(free_places(core, transaction, blocks));
    if (got < blocks.size())
        return Err::kNoSpace;
    size_t next = 0;
    for (const BlockRun& hole : holes)
        for (uint32_t i = 0; i < hole.block_count; ++i)
            blocks[next++].address = hole.address + uint64_t{i} * kBlockBytes;
    return {};
}

Status write_slice(FilesystemCore& core, FlushBatch& batch, const View& view, Generation generation,
                   std::vector<PlacedBlock> blocks)
{
    TransactionChecksumSink sink(*batch.transaction, &core.allocator);
    const WriteOrigin origin{generation, core.volume->superblock().log_epoch, &sink};
    for (int attempt = 0; !blocks.empty(); ++attempt) {
        std::vector<BlockWrite> writes = writes_of(blocks);
        const Status status = core.volume->array().write_blocks(writes, origin);
        std::vector<MappedRun> runs;
        std::vector<PlacedBlock> failed;
        size_t next = 0;
        for (const BlockWrite& write : writes) {
            for (uint32_t i = 0; i < write.block_count; ++i, ++next) {
                const PlacedBlock& block = blocks[next];
                if (write.result.ok())
                    extend_runs(runs, *block.piece, block.file_block, block.address, generation);
                else
                    failed.push_back(block);
            }
        }
        CW_TRY(record_runs(core, batch, view, runs));
        blocks = std::move(failed);
        if (blocks.empty())
            return {};
        constexpr int kAttempts = 8;
        if (status != Status(Err::kTooManyFaults) || attempt == kAttempts || core.volume->members().stopped())
            return status;
        CW_LOG_WARNING("%zu blocks go elsewhere: the rows they were to join cannot be read", blocks.size());
        // Neighbouring rows are often lost together: free ones are sure to take them.
        if (attempt > 0)
            if (const Status placed = write_in_rows(core, batch, view, generation, blocks);
                placed != Status(Err::kNoSpace))
                return placed;
        CW_TRY(place_again(core, batch.transaction->id, blocks));
    }
    return {};
}

}  // namespace

Status write_holes(FilesystemCore& core, FlushBatch& batch, const View& view, Generation generation,
                   std::span<const BlockRun> holes, BlockStream& stream)
{
    std::vector<PlacedBlock> blocks;
    for (const BlockRun& hole : holes) {
        for (uint32_t i = 0; i < hole.block_count; ++i) {
            PlacedBlock block{};
            block.memory = stream.next(block.piece, block.file_block);
            block.address = hole.address + uint64_t{i} * kBlockBytes;
            blocks.push_back(block);
            if (blocks.size() == kSliceBlocks) {
                CW_TRY(write_slice(core, batch, view, generation, std::move(blocks)));
                blocks.clear();
            }
        }
    }
    return write_slice(core, batch, view, generation, std::move(blocks));
}

}  // namespace cowraid
