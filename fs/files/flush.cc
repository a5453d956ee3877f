// SPDX-License-Identifier: MIT
#include "fs/files/flush.h"

#include <algorithm>
#include <thread>

#include "fs/files/extents.h"
#include "fs/files/flush_parts.h"
#include "fs/files/flush_stream.h"
#include "fs/txn/group_planning.h"
#include "fs/txn/no_wait.h"

namespace cowraid {

namespace {

// Data written before its extents are recorded: bounds memory held twice and the latency of write_rows().
constexpr uint64_t kPartBlocks = 32 * kMiB / kBlockBytes;

// All processors: the commit thread mostly waits for members meanwhile.
size_t frame_thread_count()
{
    constexpr size_t kThreadsMax = 16;
    return std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kThreadsMax);
}

}  // namespace

void extend_runs(const Array& array, std::vector<MappedRun>& runs, const SourceBlock& block,
                 VolumeAddress address, Generation generation)
{
    if (Frame* const frame = block.frame) {
        frame->places[block.index] = address;
        if (++frame->placed == frame->stored_blocks())
            runs.push_back({block.inode, frame->extent(array, generation)});
        return;
    }
    if (!runs.empty()) {
        MappedRun& last = runs.back();
        if (last.inode == block.inode && last.extent.end() == block.file_block && !last.extent.compressed() &&
            last.extent.block_count < kMaxExtentBlocks &&
            last.extent.address + uint64_t{last.extent.block_count} * kBlockBytes == address) {
            ++last.extent.block_count;
            return;
        }
    }
    runs.push_back({block.inode, {block.file_block, 1, ExtentKind::kData, address, generation}});
}

Status write_regions(Store& store, Transaction& transaction, std::span<const RegionWrite> writes)
{
    TransactionChecksumSink sink(transaction);
    // Who owns stripes of mirrors never waits for stripes under parity (docs/LOCKING.md): one kind after the
    // other. While groups are converted there are both.
    std::vector<RowWrite> parity, mirrors;
    for (const RegionWrite& write : writes) {
        const RowRegion& region = write.region;
        RowWrite& row = (region.geometry.parity > 0 ? parity : mirrors).emplace_back();
        row.group_address = region.group_address;
        row.first_stripe = region.first_stripe;
        row.stripe_count = region.stripe_count;
        row.first_row = region.first_row;
        row.row_count = region.row_count;
        row.blocks = write.blocks;
        // Mirrored nodes are known by their pointers' checksums; data, and all that parity covers, by
        // address.
        const Ref<const ArrayGroup> group = store.volume.array().group_at(region.group_address);
        if (region.geometry.parity > 0 || (group && (group->record.content & kGroupData) != 0))
            row.sink = &sink;
    }
    for (std::vector<RowWrite>* rows : {&parity, &mirrors})
        if (!rows->empty())
            CW_TRY(store.volume.array().write_rows(*rows));
    return {};
}

std::vector<RowRegion> split_region(const RowRegion& region, uint64_t blocks_max)
{
    std::vector<RowRegion> parts;
    const uint64_t stripe_blocks = uint64_t{region.geometry.data_columns} * region.row_count;
    const uint64_t stripes_max = std::max<uint64_t>(1, blocks_max / stripe_blocks);
    for (uint64_t done = 0; done < region.stripe_count; done += stripes_max) {
        RowRegion part = region;
        part.first_stripe += done;
        part.stripe_count = std::min(stripes_max, region.stripe_count - done);
        const uint64_t skipped = done * stripe_blocks;
        part.used_blocks =
            region.used_blocks > skipped ? std::min(region.used_blocks - skipped, part.block_count()) : 0;
        parts.push_back(part);
    }
    return parts;
}

Files::Files(Store& trees)
    : store(trees),
      inodes(trees.items, trees.changes.counter(), trees.options.idle_inodes_max),
      frame_workers(trees.options.manual_commit ? 0 : frame_thread_count())
{
}

FlushBatch begin_flush(Files& files, View view, FlushHost& host)
{
    FlushBatch batch;
    batch.host = &host;
    batch.transaction = view.open;
    batch.view = std::move(view);
    batch.inodes = files.dirty_inodes.take();
    std::sort(batch.inodes.begin(), batch.inodes.end(),
              [](const Ref<Inode>& a, const Ref<Inode>& b) { return a->number < b->number; });
    for (const Ref<Inode>& inode : batch.inodes) {
        MutexLock lock(inode->mutex);
        CW_ASSERT(inode->flushing.empty());
        inode->flushing.swap(inode->dirty);
        inode->on_dirty_list = false;
        batch.block_count += inode->flushing.block_count();
        batch.runs = batch.runs + inode->flushing.runs();
        const uint64_t size = divide_up(inode->attributes.size_bytes, kBlockBytes);
        if (size > 0 && size <= kFrameBlocksMax && inode->flushing.block_count() >= size &&
            is_to_compress(files.store.live.compression, inode->attributes.flags))
            ++batch.small_files;
    }
    return batch;
}

void reserve_inline(Files& files, FlushBatch& batch)
{
    const Store& store = files.store;
    if (batch.small_files == 0 || store.node_turns.exclusive())
        return;
    // Half of what groups are planned ahead for is for others. Nodes are half full at least; with those above
    // them and what goes along an item takes less than four times its bytes.
    const uint64_t in_memory = batch.transaction->items.byte_count();
    const uint64_t room = lasting_room(store, kGroupMetadata);
    const uint64_t left = metadata_ahead(store, kGroupMetadata) / 2;
    const uint64_t room_bytes = (room - std::min(room, left)) * kBlockBytes / 4;
    // Items are in memory until the commit, beside dirty data.
    const uint64_t most = std::min(room_bytes, store.options.dirty_bytes_max / 8);
    constexpr uint64_t kItemBytesMax = kInlineItemBytes + kInlineBytesMax;
    for (uint64_t bytes = std::min(batch.small_files * kItemBytesMax, most - std::min(most, in_memory));
         bytes >= kItemBytesMax; bytes /= 2) {
        auto reserved = std::make_unique<ChangeReservation>(files.store.ledger);
        if (!reserved->take({.bytes = bytes}, Leave::kReserve))
            continue;
        batch.inline_room = std::move(reserved);
        batch.inline_bytes = bytes;
        return;
    }
}

Status adjust_data_blocks(Store& store, Transaction& transaction, const View& view, Inode& inode,
                          int64_t delta)
{
    inode.mutex.assert_held();
    if (delta == 0)
        return {};
    inode.attributes.data_blocks += static_cast<uint64_t>(delta);
    const Ref<Transaction> open = store.timeline.open();
    const Key key = inode_key(inode.number);
    transaction.dirty = true;
    if (open->id == transaction.id) {
        transaction.items.put(key, encode_inode(inode.attributes));
        return {};
    }
    // The item of the closed transaction has that transaction's size and times; only the count is new.
    ItemBytes payload;
    CW_TRY(store.items.get(view, key, payload));
    CW_ASSIGN(InodeAttributes closed, decode_inode(payload));
    closed.data_blocks += static_cast<uint64_t>(delta);
    transaction.items.put(key, encode_inode(closed));
    if (open->items.get(key, payload) == ItemState::kPresent)
        open->items.put(key, encode_inode(inode.attributes));
    return {};
}

namespace {

// Instead of zeros.
Status make_hole(const Files& files, const FlushBatch& batch, ExtentEditor& editor, const MappedRun& run,
                 Unmapped& removed)
{
    const FileExtent& hole = run.extent;
    std::vector<FileExtent> there;
    CW_TRY(find_extents(files.store.items, batch.view, run.inode->number, hole.file_block, hole.block_count,
                        there));
    for (const FileExtent& extent : there) {
        if (extent.kind == ExtentKind::kReserved)
            continue;
        const uint64_t first = std::max(extent.file_block, hole.file_block);
        CW_TRY(editor.unmap(first, std::min(extent.end(), hole.end()) - first, removed));
    }
    return {};
}

// `runs_more`: by how many the runs that are being flushed changed.
Status record_run(Files& files, FlushBatch& batch, const MappedRun& run, DirtyRuns& runs_more)
{
    Inode& inode = *run.inode;
    Transaction& transaction = *batch.transaction;
    MutexLock lock(inode.mutex);
    Unmapped removed;
    {
        ExtentEditor editor(files, transaction, batch.view, inode);
        if (run.extent.kind == ExtentKind::kReserved) {
            CW_TRY(make_hole(files, batch, editor, run, removed));
        } else {
            CW_TRY(editor.unmap(run.extent.file_block, run.extent.block_count, removed));
            CW_TRY(editor.map(run.extent));
        }
        const DirtyRuns runs = inode.flushing.runs();
        // The flush holds the buffers of the rest.
        inode.flushing.erase(run.extent.file_block, run.extent.block_count, 0);
        runs_more = inode.flushing.runs() - runs;
    }
    // A reserved block was counted when fallocate reserved it.
    const int64_t delta = int64_t{run.extent.counted_blocks()} - static_cast<int64_t>(removed.data_blocks) -
                          static_cast<int64_t>(removed.reserved_blocks);
    CW_TRY(adjust_data_blocks(files.store, transaction, batch.view, inode, delta));
    if (removed.reserved_blocks != 0)
        batch.reserved_used += return_reserved(files, removed.reserved_blocks);
    return {};
}

}  // namespace

Status place_blocks(Store& store, uint64_t block_count, uint64_t join_first, TransactionId transaction,
                    Placement& placement)
{
    const auto join = [&](uint64_t wanted) {
        if (wanted > 0 && store.volume.intent_log_live() && !store.service.whole_rows_only())
            placement.partial_row_blocks +=
                store.allocator.allocate_in_partial_rows(wanted, transaction, placement.partial_rows);
    };
    const auto rest = [&] {
        return block_count - placement.partial_row_blocks;
    };
    join(join_first);
    for (;;) {
        const Status placed =
            store.allocator.allocate(Stream::kData, 1, rest(), transaction, placement.regions);
        if (placed != Status(Err::kNoSpace))
            return placed;
        // As many rows as there are, and the rest into partial ones.
        const uint64_t in_rows = store.allocator.numbers(kGroupData).free_row_blocks;
        const uint64_t before = placement.partial_row_blocks;
        join(rest() - std::min(rest(), in_rows));
        if (placement.partial_row_blocks == before)
            join(rest());
        if (placement.partial_row_blocks == before)
            return placed;
    }
}

// Free rows while there are plenty; then what does not fill a stripe rather joins rows than opens one; and
// what no free row is left for joins them in any case.
uint64_t blocks_to_join(const Store& store, uint64_t block_count)
{
    if (store.service.whole_rows_only())
        return 0;
    const SpaceNumbers data = store.allocator.numbers(kGroupData);
    const uint64_t scarce =
        store.join_policy.blocks_to_join(data, store.volume.potential_blocks(kGroupData), block_count);
    const uint64_t rows = data.free_row_blocks - std::min(data.free_row_blocks, store.moving_blocks.load());
    const uint64_t beyond = block_count > rows ? block_count - rows : 0;
    return std::min(data.partial_row_blocks, std::max(scarce, beyond));
}

Status write_in_rows(Files& files, FlushBatch& batch, std::span<const RowRegion> regions, uint64_t blocks_max,
                     BlockSource& source)
{
    std::vector<RegionWrite> writes;
    std::vector<MappedRun> recorded;
    std::vector<MappedRun> runs;  // of the block group at hand: no extent crosses the border of two
    uint64_t block_count = 0;
    const auto end_runs = [&] {
        recorded.insert(recorded.end(), runs.begin(), runs.end());
        runs.clear();
    };
    const auto write = [&]() -> Status {
        CW_TRY(write_regions(files.store, *batch.transaction, writes));
        end_runs();
        CW_TRY(record_runs(files, batch, recorded));
        source.let_go();
        writes.clear();
        recorded.clear();
        block_count = 0;
        return {};
    };
    for (const RowRegion& region : regions)
        for (const RowRegion& part : split_region(region, blocks_max)) {
            if (block_count > 0 && block_count + part.block_count() > blocks_max)
                CW_TRY(write());
            if (!writes.empty() && writes.back().region.group_address != part.group_address)
                end_runs();
            RegionWrite& rows = writes.emplace_back(part);
            block_count += part.block_count();
            for (uint64_t i = 0; i < part.used_blocks; ++i) {
                const SourceBlock block = source.next();
                rows.blocks[i] = block.memory;
                extend_runs(files.store.volume.array(), runs, block, part.block_address(i), batch.generation);
            }
        }
    return writes.empty() ? Status() : write();
}

Status record_runs(Files& files, FlushBatch& batch, std::span<const MappedRun> runs)
{
    for (const MappedRun& run : runs) {
        DirtyRuns runs_more;
        CW_TRY(record_run(files, batch, run, runs_more));
        // Holes and inline frames take no place. What others take is given back with it, by refresh_budget().
        const bool placed = run.extent.stored_blocks() > 0;
        files.store.ledger.remove_dirty(run.extent.block_count, runs_more,
                                        placed ? 0 : run.extent.block_count);
    }
    files.store.ledger.answer_waiting();
    return {};
}

namespace {

// What `stream` has at hand.
Status write_window(Files& files, FlushBatch& batch, FlushStream& stream)
{
    Store& store = files.store;
    CW_TRY(record_runs(files, batch, stream.without_blocks()));
    const uint64_t block_count = stream.stored_blocks();
    if (block_count == 0)
        return {};
    Placement placement;
    Status placed = place_blocks(store, block_count, blocks_to_join(store, block_count),
                                 batch.transaction->id, placement);
    // Room was made for the batch as a whole; what does not fill a row is more in several windows.
    if (placed == Status(Err::kNoSpace)) {
        CW_TRY(batch.host->ensure_room(block_count - placement.partial_row_blocks, batch.node_blocks));
        placed = place_blocks(store, block_count, 0, batch.transaction->id, placement);
    }
    CW_TRY(placed);
    refresh_budget(store, stream.file_blocks());
    CW_TRY(write_in_rows(files, batch, placement.regions, kPartBlocks, stream));
    return write_into_partial_rows(files, batch, placement.partial_rows, stream);
}

Status write_batch(Files& files, FlushBatch& batch)
{
    batch.generation = files.store.volume.superblock().generation.next();
    batch.transaction->dirty = true;
    FlushStream stream(files, batch.inodes, batch.inline_bytes);
    while (stream.next_window(batch.generation)) {
        if (stream.has_inline_frames())
            files.store.volume.note_inline_frames();
        // From the first frame on a write reserves what it may cut.
        if (files.store.volume.may_have_frames() && !files.store.ledger.metadata_room().has_frames)
            refresh_budget(files.store);
        if (stream.has_frames())
            files.store.volume.note_frames();
        CW_TRY(write_window(files, batch, stream));
    }
    batch.inline_room.reset();  // what it was for is in the transaction
    files.flush_done.announce();
    return {};
}

}  // namespace

Status write_flush(Files& files, FlushBatch& batch)
{
    if (batch.block_count > 0)
        CW_TRY(write_batch(files, batch));
    answer_writers(files.store);  // those whose data somebody dropped, too
    return {};
}

void let_go(Files& files, FlushBatch& batch)
{
    for (Ref<Inode>& inode : batch.inodes) {
        const InodeNumber number = inode->number;
        inode = {};
        files.inodes.prune(number);
    }
    batch.inodes.clear();
}

void answer_writers(Store& store)
{
    if (store.ledger.answer_waiting())
        store.commits.request_flush();
}

Status wait_for_flush(Files& files, Inode& inode)
{
    while (true) {
        const uint64_t ticket = files.flush_done.ticket();
        {
            MutexLock lock(inode.mutex);
            if (inode.flushing.empty())
                return {};
        }
        if (!files.store.service.writing() || files.store.options.manual_commit)
            return {};
        if (NoWait::active())
            return Err::kWouldWait;
        files.flush_done.wait_past(ticket);
    }
}

}  // namespace cowraid
