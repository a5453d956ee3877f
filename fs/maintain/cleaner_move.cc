// SPDX-License-Identifier: MIT
// Moving the live blocks of a group.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "fs/files/flush.h"
#include "fs/maintain/cleaner.h"
#include "fs/txn/group_planning.h"
#include "fs/txn/operation.h"
#include "fs/txn/store.h"
#include "fs/volume/commit_mutant.h"

namespace cowraid {

// How many of `wanted` blocks there is room for, in free rows and, with `reservation`, for what the commit
// will say of them; 0: for fewer than `least`, or fewer than the commit leaves room for, and `progress` says
// what it waits for.
uint64_t Cleaner::make_room(Source& source, const View& view, uint64_t wanted, uint64_t least,
                            ChangeReservation& reservation, CleanProgress& progress)
{
    const uint64_t stripe = stripe_blocks(source.group);
    uint64_t count = wanted;
    // An entry each way. Names of blocks that were moved before are not neighbours.
    constexpr uint64_t kEntryBytes = 64;
    const auto changes = [](uint64_t blocks) {
        return PendingChanges{
            .remap_windows = 2 * blocks, .remap_bytes = 2 * blocks * kEntryBytes, .data_blocks = blocks};
    };
    // Where no commit gives room for so many, fewer are better than to wait for ever.
    while (least > stripe && !store_.ledger.fits_alone(changes(least), 0))
        least = std::max(stripe, least / 2 / stripe * stripe);
    while (store_.node_turns.exclusive() || !reservation.take(changes(count), Leave::kReserve)) {
        progress = view.open->dirty ? CleanProgress::kNeedsCommit : CleanProgress::kNothing;
        if (count <= least)
            return 0;
        count = std::max(least, count / 2 / stripe * stripe);
    }
    // Rows for the writers of now, too: they need not fall back on partial ones.
    const uint64_t beside = stripe + store_.ledger.dirty_blocks();
    if (lasting_room(store_, kGroupData) >= count + beside)
        return count;
    const size_t groups = store_.volume.map().groups.size();
    progress = CleanProgress::kNothing;
    if (!plan_for(store_, std::max<uint64_t>(count, store_.moving_blocks) + beside, 0).ok())
        return 0;
    if (store_.volume.map().groups.size() > groups) {
        wait_for_commit(source, *view.open);  // publishes them
        progress = CleanProgress::kNeedsCommit;
        return 0;
    }
    count = std::min(count, store_.allocator.numbers(kGroupData).free_row_blocks);
    return count >= least ? count : 0;
}

namespace {

// Gives places to blocks one after the other: moves are cut where places are not neighbours, and where a
// region ends. The next one may begin there, in another group.
class PlaceMoves {
public:
    explicit PlaceMoves(std::vector<MovedRun>& moves) : wanted_(std::move(moves)), placed_(moves)
    {
        placed_.clear();
    }

    // `to` is block `number` of a region. The number of the block in its batch.
    size_t place(VolumeAddress to, uint64_t number)
    {
        const MovedRun& run = wanted_[run_];
        const uint64_t offset = uint64_t{block_} * kBlockBytes;
        if (block_ > 0 && number > 0 &&
            placed_.back().to + uint64_t{placed_.back().block_count} * kBlockBytes == to)
            ++placed_.back().block_count;
        else
            placed_.push_back({run.from + offset, run.logical + offset, to, 1, run.first + block_});
        const size_t index = run.first + block_;
        if (++block_ == run.block_count) {
            ++run_;
            block_ = 0;
        }
        return index;
    }

private:
    std::vector<MovedRun> wanted_;
    std::vector<MovedRun>& placed_;
    size_t run_ = 0;
    uint32_t block_ = 0;
};

}  // namespace

// Gives every block a place in rows that hold nothing, and writes it there.
Status Cleaner::write_blocks(Source& source, const View& view, MoveBatch& batch)
{
    std::vector<RowRegion> regions;
    CW_TRY(store_.allocator.allocate(Stream::kMoved, 1, batch.move_count, view.open->id, regions));
    view.open->dirty = true;
    const uint64_t taken = std::min(source.reserved, batch.move_count);
    take_reserved(source, taken);
    refresh_budget(store_, taken);
    PlaceMoves places(batch.moves);
    std::vector<RegionWrite> writes(regions.begin(), regions.end());
    for (RegionWrite& write : writes)
        for (uint64_t i = 0; i < write.region.used_blocks; ++i)
            write.blocks[i] =
                batch.memory.data() + places.place(write.region.block_address(i), i) * kBlockBytes;
    return write_regions(store_, *view.open, writes);
}

namespace {

// What was written is what was read: memory may fail too.
bool arrived(Store& store, const View& view, const MoveBatch& batch)
{
    std::vector<BlockExpectation> written;
    for (const MovedRun& move : batch.moves) {
        written.resize(move.block_count);
        if (!store.checksums.lookup(view, move.to, written).ok())
            return false;
        for (uint32_t i = 0; i < move.block_count; ++i)
            if (!written[i].known || written[i].checksum != batch.checksums[move.first + i])
                return false;
    }
    return true;
}

// Blocks of one move that its file still has: they are found at their new places.
void switch_run(Transaction& open, const MovedRun& move, const BlockRun& live)
{
    const uint64_t offset = live.address - move.from;
    const VolumeAddress to = move.to + offset;
    const VolumeAddress name = is_mutant(CommitMutant::kMovedChain) ? live.address : move.logical + offset;
    std::vector<uint64_t> values(live.block_count);
    const auto count_from = [&](VolumeAddress first) {
        for (size_t i = 0; i < values.size(); ++i)
            values[i] = first.value + i * kBlockBytes;
    };
    count_from(to);
    open.moved_to.put(name, values);
    count_from(name);
    if (!is_mutant(CommitMutant::kMovedFromMissing))
        open.moved_from.put(to, values);
    if (move.logical != move.from) {
        values.assign(values.size(), 0);
        open.moved_from.put(live.address, values);
    }
}

}  // namespace

// From one moment on files have their blocks at the new places. Blocks that were freed on the way have two
// places to give back, of which one is done. kCorrupt, and nothing changed: in a damaged tree somebody had
// named a new place while it was free, and has freed it.
Status Cleaner::switch_blocks(Transaction& open, std::span<const MovedRun> moves)
{
    const WriteLock gate(store_.gate);
    std::vector<BlockRun> live;
    for (const MovedRun& move : moves) {
        uint64_t there = 0;
        CW_TRY(store_.allocator.live_in({move.to, move.block_count}, live));
        for (const BlockRun& run : std::exchange(live, {}))
            there += run.block_count;
        if (there != move.block_count)
            return Err::kCorrupt;
    }
    std::vector<size_t> ends;  // of each move's in `live`
    for (const MovedRun& move : moves) {
        CW_TRY(store_.allocator.live_in({move.from, move.block_count}, live));
        ends.push_back(live.size());
    }
    const auto free_run = [&](VolumeAddress address, uint64_t bytes) {
        if (bytes == 0)
            return;
        CW_ASSERT(store_.allocator.free_blocks(address, bytes / kBlockBytes, open.id).ok());
        note_freed(store_, address, bytes / kBlockBytes, open.id);
    };
    size_t next = 0;
    for (size_t i = 0; i < moves.size(); ++i) {
        const MovedRun& move = moves[i];
        VolumeAddress at = move.from;
        for (; next < ends[i]; ++next) {
            free_run(move.to + (at - move.from), live[next].address - at);
            switch_run(open, move, live[next]);
            const uint64_t bytes = uint64_t{live[next].block_count} * kBlockBytes;
            free_run(live[next].address, bytes);
            counts_.moved_blocks.fetch_add(live[next].block_count, std::memory_order_relaxed);
            at = live[next].address + bytes;
        }
        const VolumeAddress end = move.from + uint64_t{move.block_count} * kBlockBytes;
        free_run(move.to + (at - move.from), end - at);
    }
    return {};
}

// The new places hold nothing that anybody refers to.
void Cleaner::abandon(VolumeAddress group, Transaction& open, std::span<const MovedRun> moves, Status why)
{
    std::vector<BlockRun> live;
    for (const MovedRun& move : moves)
        if (move.to.valid())
            store_.allocator.live_in({move.to, move.block_count}, live).ignore();
    for (const BlockRun& run : live)
        store_.allocator.free_blocks(run.address, run.block_count, open.id).ignore();
    if (why.err() == Err::kBusy)
        return;  // its allocation state left memory meanwhile
    failed_ = true;
    CW_LOG_ERROR(
        "emptying block group %llu stops: %s; it is tried again later, at once by cowraid balance start "
        "or resume",
        static_cast<unsigned long long>(group.value), err_text(why.err()));
}

// Writes the blocks of a batch, and switches to what was written.
Status Cleaner::carry_out(Source& source, const View& view, MoveBatch& batch)
{
    if (!batch.moves.empty())
        CW_TRY(write_blocks(source, view, batch));
    if (!arrived(store_, view, batch))
        return Err::kCorrupt;
    return switch_blocks(*view.open, batch.moves);
}

// The next batch of the group. kNotFound: nothing is left behind `next`.
Status Cleaner::fetch(Source& source, const View& view, uint64_t block_count)
{
    if (!source.next.valid())
        return Err::kNotFound;
    CW_TRY(read_move_batch(store_, view, source.next, block_count, batch_));
    return batch_.runs.empty() ? Err::kNotFound : Err::kOk;
}

CleanProgress Cleaner::move(Source& source, const View& view, uint64_t bytes)
{
    const std::optional<GroupNumbers> numbers = store_.allocator.numbers_of(source.group);
    const uint64_t stripe = stripe_blocks(source.group);
    const uint64_t wanted = std::min(CleanPolicy::step_blocks(stripe, bytes), numbers->live_blocks);
    const uint64_t least = std::min(CleanPolicy::step_blocks(stripe, CleanPolicy::kStepBytes), wanted);
    ChangeReservation reservation(store_.ledger);
    CleanProgress progress = CleanProgress::kWorked;
    const uint64_t count = make_room(source, view, wanted, least, reservation, progress);
    if (count == 0)
        return progress;
    // Until its blocks are switched: what loads the groups of their new places would drop it.
    const Allocator::Kept kept(store_.allocator, source.group);
    Status status = fetch(source, view, count);
    if (status.err() == Err::kNotFound && source.moved_any) {
        source.next = source.group;  // once more: what is left could not be read, or was just written
        source.unmovable = 0;
        source.moved_any = false;
        return CleanProgress::kWorked;
    }
    // Groups that changed hold the memory for bitmaps until their changes are durable and nobody reads older
    // ones.
    if (status.err() == Err::kNoMemory)
        return store_.timeline.reads_older() ? CleanProgress::kNothing : CleanProgress::kNeedsCommit;
    // What is not the group's own fault would meet the others, too.
    if (status.err() == Err::kNotFound || store_.allocator.numbers_of(source.group)->broken) {
        set_aside(source);
        return CleanProgress::kWorked;
    }
    if (status.ok())
        status = carry_out(source, view, batch_);
    if (status.err() == Err::kNoSpace)
        return CleanProgress::kNothing;
    if (!status.ok()) {
        abandon(source.group, *view.open, batch_.moves, status);
        return failed_ ? CleanProgress::kNothing : CleanProgress::kWorked;
    }
    source.unmovable += batch_.unmovable;
    source.moved_any = source.moved_any || batch_.move_count > 0;
    const BlockRun& last = batch_.runs.back();
    source.next = last.address + uint64_t{last.block_count} * kBlockBytes;
    const Ref<const ArrayGroup> group = store_.volume.array().group_at(source.group);
    if (source.next - source.group >= group->record.data_bytes())
        source.next = {};
    return CleanProgress::kWorked;
}

}  // namespace cowraid
