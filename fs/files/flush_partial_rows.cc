// SPDX-License-Identifier: MIT
// The part of a flush that goes into rows that hold other blocks.
#include <algorithm>
#include <optional>

#include "base/log.h"
#include "fs/files/flush_parts.h"
#include "fs/txn/group_planning.h"

namespace cowraid {

namespace {

// Blocks handed to the array at a time.
constexpr size_t kSliceBlocks = 2048;

struct PlacedBlock {
    SourceBlock block;
    VolumeAddress address;
};

Status free_physical(Store& store, TransactionId transaction, std::span<const PlacedBlock> blocks)
{
    for (const PlacedBlock& block : blocks)
        CW_TRY(store.allocator.free_blocks(block.address, 1, transaction));
    return {};
}

class PlacedBlocks final : public BlockSource {
public:
    explicit PlacedBlocks(std::span<const PlacedBlock> blocks) : blocks_(blocks) { }
    SourceBlock next() override { return blocks_[next_++].block; }

private:
    const std::span<const PlacedBlock> blocks_;
    size_t next_ = 0;
};

// Blocks whose rows cannot take them go into free rows, and are gone from `blocks`; with new places in
// partial rows where there are not enough of those. The old places are freed: no file refers to them.
Status place_elsewhere(Files& files, FlushBatch& batch, std::vector<PlacedBlock>& blocks)
{
    const TransactionId transaction = batch.transaction->id;
    Placement placement;
    Status placed = place_blocks(files.store, blocks.size(), 0, transaction, placement);
    if (placed == Status(Err::kNoSpace)) {
        CW_TRY(batch.host->ensure_room(blocks.size() - placement.partial_row_blocks, batch.node_blocks));
        placed = place_blocks(files.store, blocks.size(), 0, transaction, placement);
    }
    CW_TRY(placed);
    // After that, so that the same places are not offered again.
    CW_TRY(free_physical(files.store, transaction, blocks));
    size_t next = 0;
    for (const BlockRun& run : placement.partial_rows)
        for (uint32_t i = 0; i < run.block_count; ++i)
            blocks[next++].address = run.address + uint64_t{i} * kBlockBytes;
    PlacedBlocks rest{std::span(blocks).subspan(next)};
    CW_TRY(write_in_rows(files, batch, placement.regions, kSliceBlocks, rest));
    blocks.resize(next);
    return {};
}

// What became of blocks that were handed to the array.
struct SliceOutcome {
    std::vector<MappedRun> written;
    std::vector<PlacedBlock> waiting;  // for a commit of what was written (BlockWrite::result)
    std::vector<PlacedBlock> refused;  // too much of their rows is lost
};

Status write_once(Files& files, FlushBatch& batch, std::span<const PlacedBlock> blocks, SliceOutcome& outcome)
{
    if (!files.store.in_place)
        files.store.in_place = make_ref<Transaction>(between_commits(files.store));
    TransactionChecksumSink sink(*batch.transaction, &files.store.allocator, files.store.in_place.get());
    const WriteOrigin origin{batch.generation, files.store.volume.log_epoch(), &sink};
    std::vector<BlockWrite> writes;
    for (const PlacedBlock& block : blocks)
        writes.push_back({block.address, 1, block.block.memory, {}});
    files.store.volume.array().write_blocks(writes, origin).ignore();  // each has its own result
    for (size_t i = 0; i < blocks.size(); ++i) {
        const PlacedBlock& block = blocks[i];
        if (writes[i].result.ok())
            extend_runs(files.store.volume.array(), outcome.written, block.block, block.address,
                        batch.generation);
        else if (writes[i].result == Status(Err::kNoSpace))
            outcome.waiting.push_back(block);
        else if (writes[i].result == Status(Err::kTooManyFaults))
            outcome.refused.push_back(block);
        else
            return writes[i].result;
    }
    CW_TRY(record_runs(files, batch, outcome.written));
    // No row takes anything any more.
    return files.store.volume.members().stopped() ? Err::kTooManyFaults : Err::kOk;
}

Status write_slice(Files& files, FlushBatch& batch, std::vector<PlacedBlock> blocks)
{
    std::optional<size_t> missing;  // members, at the last commit
    bool told = false;
    while (!blocks.empty()) {
        SliceOutcome outcome;
        CW_TRY(write_once(files, batch, blocks, outcome));
        if (!outcome.waiting.empty()) {
            // After a commit every log has room for several appends (IntentLog::batch_rows).
            const bool stuck = outcome.written.empty() && outcome.refused.empty();
            if (stuck && missing == files.store.volume.missing_members().size())
                return Err::kIo;
            missing = files.store.volume.missing_members().size();
            CW_TRY(batch.host->commit_checksums(batch));
        }
        if (!outcome.refused.empty()) {
            if (!told)
                CW_LOG_WARNING("%zu blocks go elsewhere: the rows they were to join cannot be read",
                               outcome.refused.size());
            told = true;
            CW_TRY(place_elsewhere(files, batch, outcome.refused));
        }
        blocks = std::move(outcome.waiting);
        blocks.insert(blocks.end(), outcome.refused.begin(), outcome.refused.end());
    }
    return {};
}

}  // namespace

Status write_into_partial_rows(Files& files, FlushBatch& batch, std::span<const BlockRun> runs,
                               BlockSource& stream)
{
    std::vector<PlacedBlock> blocks;
    for (const BlockRun& run : runs) {
        for (uint32_t i = 0; i < run.block_count; ++i) {
            blocks.push_back({stream.next(), run.address + uint64_t{i} * kBlockBytes});
            if (blocks.size() == kSliceBlocks) {
                CW_TRY(write_slice(files, batch, std::move(blocks)));
                stream.let_go();
                blocks.clear();
            }
        }
    }
    return write_slice(files, batch, std::move(blocks));
}

}  // namespace cowraid
