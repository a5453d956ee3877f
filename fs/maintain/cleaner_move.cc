// SPDX-License-Identifier: MIT
// Moving the live blocks of a group. They are found by its allocation state, not by walking files.
#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "fs/files/flush.h"
#include "fs/maintain/cleaner.h"
#include "fs/txn/group_planning.h"
#include "fs/txn/operation.h"
#include "fs/txn/store.h"
#include "fs/volume/commit_mutant.h"

namespace cowraid {

namespace {

uint64_t count_of(std::span<const BlockRun> runs)
{
    uint64_t count = 0;
    for (const BlockRun& run : runs)
        count += run.block_count;
    return count;
}

}  // namespace

// kWorked: there is room in free rows, and `reservation` has what the commit will say of it.
CleanProgress Cleaner::make_room(const View& view, uint64_t block_count, ChangeReservation& reservation)
{
    // An entry each way. Names of blocks that were moved before are not neighbours.
    constexpr uint64_t kEntryBytes = 64;
    const PendingChanges own = {.remap_windows = 2 * block_count,
                                .remap_bytes = 2 * block_count * kEntryBytes,
                                .data_blocks = block_count};
    if (store_.node_turns.exclusive() || !reservation.take(own, Leave::kReserve))
        return view.open->dirty ? CleanProgress::kNeedsCommit : CleanProgress::kNothing;
    // Rows for the writers of now, too: they need not fall back on partial ones.
    const uint64_t wanted = block_count + stripe_blocks(group_) + store_.ledger.dirty_blocks();
    if (lasting_room(store_, kGroupData) >= wanted)
        return CleanProgress::kWorked;
    const size_t groups = store_.volume.map().groups.size();
    if (!plan_for(store_, wanted, 0).ok())
        return CleanProgress::kNothing;
    if (store_.volume.map().groups.size() > groups) {
        wait_for_commit(*view.open);  // publishes them
        return CleanProgress::kNeedsCommit;
    }
    return store_.allocator.numbers(kGroupData).free_row_blocks >= block_count ? CleanProgress::kWorked
                                                                               : CleanProgress::kNothing;
}

// Tells which of the blocks can be had, one by one.
Status Cleaner::read_singly(std::span<const BlockRun> runs, std::span<const BlockExpectation> expected,
                            std::byte* memory, std::vector<bool>& readable)
{
    size_t index = 0;
    for (const BlockRun& run : runs)
        for (uint32_t i = 0; i < run.block_count; ++i, ++index) {
            ReadPiece piece;
            piece.address = run.address + uint64_t{i} * kBlockBytes;
            piece.block_count = 1;
            piece.memory = memory + index * kBlockBytes;
            piece.checksums = &expected[index].checksum;
            if (!expected[index].known || !store_.volume.array().read({&piece, 1}).ok())
                readable[index] = false;
        }
    return {};
}

Status Cleaner::read_blocks(const View& view, std::span<const BlockRun> runs, AlignedBuffer& memory,
                            std::vector<Move>& moves)
{
    const uint64_t count = count_of(runs);
    std::vector<BlockExpectation> expected(count);
    std::vector<VolumeAddress> logicals(count);
    std::vector<Checksum> checksums(count);
    std::vector<ReadPiece> pieces(runs.size());
    bool all_known = true;
    size_t index = 0;
    for (size_t i = 0; i < runs.size(); ++i) {
        const BlockRun& run = runs[i];
        const auto part = std::span(expected).subspan(index, run.block_count);
        CW_TRY(store_.checksums.lookup(view, run.address, part));
        CW_TRY(
            store_.remap.logical_of(view, run.address, std::span(logicals).subspan(index, run.block_count)));
        pieces[i].address = run.address;
        pieces[i].block_count = run.block_count;
        pieces[i].memory = memory.data() + index * kBlockBytes;
        pieces[i].checksums = checksums.data() + index;
        for (const BlockExpectation& expectation : part) {
            all_known = all_known && expectation.known;
            checksums[index++] = expectation.checksum;
        }
    }
    std::vector<bool> readable(count, true);
    if (!all_known || !store_.volume.array().read(pieces).ok())
        CW_TRY(read_singly(runs, expected, memory.data(), readable));
    index = 0;
    for (const BlockRun& run : runs)
        for (uint32_t i = 0; i < run.block_count; ++i, ++index) {
            CW_ASSIGN(const bool there,
                      is_there(view, logicals[index], run.address + uint64_t{i} * kBlockBytes));
            if (there && readable[index])
                moves.push_back({run.address + uint64_t{i} * kBlockBytes,
                                 {},
                                 logicals[index],
                                 checksums[index],
                                 memory.data() + index * kBlockBytes});
            else
                ++unmovable_;
        }
    return {};
}

// Whether the logical address of a block leads to it. Moving one that a damaged tree gives to another would
// lose it for its own file, and give it to another (I-28).
Result<bool> Cleaner::is_there(const View& view, VolumeAddress logical, VolumeAddress physical)
{
    std::vector<RemappedRun> runs;
    CW_TRY(store_.remap.resolve(view, logical, 1, runs));
    return runs.front().physical == physical;
}

// Gives every block a place in rows that hold nothing, and writes it there.
Status Cleaner::write_blocks(const View& view, std::vector<Move>& moves)
{
    std::vector<RowRegion> regions;
    CW_TRY(store_.allocator.allocate(Stream::kMoved, 1, moves.size(), view.open->id, regions));
    view.open->dirty = true;
    const uint64_t taken = std::min<uint64_t>(store_.moving_blocks, moves.size());
    store_.moving_blocks -= taken;
    refresh_budget(store_, taken);
    size_t next = 0;
    for (const RowRegion& region : regions)
        for (uint64_t i = 0; i < region.used_blocks; ++i)
            moves[next++].to = region.block_address(i);
    next = 0;
    std::vector<RegionWrite> writes(regions.begin(), regions.end());
    for (RegionWrite& write : writes)
        for (uint64_t i = 0; i < write.region.used_blocks; ++i)
            write.blocks[i] = moves[next++].memory;
    return write_regions(store_, *view.open, writes);
}

// What was written is what was read: memory may fail too.
bool Cleaner::arrived(const View& view, std::span<const Move> moves)
{
    return std::all_of(moves.begin(), moves.end(), [&](const Move& move) {
        BlockExpectation written;
        return store_.checksums.lookup(view, move.to, {&written, 1}).ok() && written.known &&
               written.checksum == move.checksum;
    });
}

// From one moment on files have their blocks at the new places. Blocks that were freed on the way have two
// places to give back, of which one is done.
Status Cleaner::switch_blocks(Transaction& open, std::span<const Move> moves)
{
    const WriteLock gate(store_.gate);
    std::vector<bool> live;
    for (const Move& move : moves) {
        CW_ASSIGN(const bool is_live, store_.allocator.is_live(move.from));
        live.push_back(is_live);
    }
    const uint64_t none = 0;
    for (size_t i = 0; i < moves.size(); ++i) {
        const Move& move = moves[i];
        if (!live[i]) {
            CW_ASSERT(store_.allocator.free_blocks(move.to, 1, open.id).ok());
            continue;
        }
        const bool chain = is_mutant(CommitMutant::kMovedChain);
        const VolumeAddress logical = chain ? move.from : move.logical;
        open.moved_to.put(logical, {&move.to.value, 1});
        if (!is_mutant(CommitMutant::kMovedFromMissing))
            open.moved_from.put(move.to, {&logical.value, 1});
        if (move.logical != move.from)
            open.moved_from.put(move.from, {&none, 1});
        CW_ASSERT(store_.allocator.free_blocks(move.from, 1, open.id).ok());
        counts_.moved_blocks.fetch_add(1, std::memory_order_relaxed);
    }
    return {};
}

// The new places hold nothing that anybody refers to.
void Cleaner::abandon(Transaction& open, std::span<const Move> moves, Status why)
{
    for (const Move& move : moves)
        if (move.to.valid())
            store_.allocator.free_blocks(move.to, 1, open.id).ignore();
    if (why.err() == Err::kBusy)
        return;  // its allocation state left memory meanwhile
    failed_ = true;
    CW_LOG_ERROR("emptying block group %llu ends for this mount: %s",
                 static_cast<unsigned long long>(group_.value), err_text(why.err()));
}

CleanProgress Cleaner::move(const View& view)
{
    std::vector<BlockRun> runs;
    const uint64_t wanted = CleanPolicy::step_blocks(stripe_blocks(group_));
    Status status = next_.valid() ? store_.allocator.live_blocks(next_, wanted, runs) : Status();
    if (!status.ok() || (runs.empty() && !moved_any_)) {
        set_aside();
        return CleanProgress::kWorked;
    }
    if (runs.empty()) {  // once more: what is left could not be read, or was just written
        next_ = group_;
        unmovable_ = 0;
        moved_any_ = false;
        return CleanProgress::kWorked;
    }
    ChangeReservation reservation(store_.ledger);
    if (const CleanProgress room = make_room(view, count_of(runs), reservation);
        room != CleanProgress::kWorked)
        return room;
    AlignedBuffer memory(count_of(runs) * kBlockBytes);
    std::vector<Move> moves;
    status = read_blocks(view, runs, memory, moves);
    if (status.ok() && !moves.empty())
        status = write_blocks(view, moves);
    if (status.err() == Err::kNoSpace)
        return CleanProgress::kNothing;
    if (status.ok() && !arrived(view, moves))
        status = Err::kCorrupt;
    if (status.ok())
        status = switch_blocks(*view.open, moves);
    if (!status.ok()) {
        abandon(*view.open, moves, status);
        return failed_ ? CleanProgress::kNothing : CleanProgress::kWorked;
    }
    moved_any_ = moved_any_ || !moves.empty();
    const Ref<const ArrayGroup> group = store_.volume.array().group_at(group_);
    next_ = runs.back().address + uint64_t{runs.back().block_count} * kBlockBytes;
    if (next_ - group_ >= group->record.data_bytes())
        next_ = {};
    return CleanProgress::kWorked;
}

}  // namespace cowraid
