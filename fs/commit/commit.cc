// SPDX-License-Identifier: MIT
#include <algorithm>

#include "base/log.h"
#include "device/superblock_store.h"
#include "fs/commit/commit_trees.h"
#include "fs/commit/committer.h"
#include "fs/commit/fsync_collect.h"
#include "fs/commit/node_moves.h"
#include "fs/files/flush.h"
#include "fs/txn/group_planning.h"
#include "fs/txn/operation.h"
#include "fs/volume/commit_mutant.h"

namespace cowraid {

namespace {

// What a commit starts from: everything that changed up to one moment.
struct ClosedTransaction {
    Ref<Transaction> transaction;
    FlushBatch batch;  // its view: the transaction, and nothing newer
    VolumeCounters counters;
    PendingChanges changes;
    Scrub::Progress scrubbed;
    uint64_t change = 0;  // number of the newest change in it
    bool log_ready = false;  // what comes after it may be logged, once it is committed
};

bool nothing_changed(Store& store)
{
    return !store.timeline.open()->dirty && !store.volume.map_changed() &&
           !store.volume.member_failed_since_commit();
}

// Everything that its trees will have to record.
PendingChanges changes_of(const ClosedTransaction& closed)
{
    PendingChanges changes = changes_in(*closed.transaction);
    changes += changes_of_data(closed.batch.block_count, closed.batch.runs);
    return changes;
}

// The one moment in which no operation runs: what returned before it is in, the rest is not.
ClosedTransaction close_transaction(Committer& committer)
{
    WriteLock gate(committer.store.gate);
    ClosedTransaction closed;
    const Ref<const Committed> base = committer.store.timeline.commit_view().committed;
    closed.transaction = committer.store.timeline.close_open();
    committer.store.ledger.set_transactions(committer.store.timeline.view());
    closed.batch = begin_flush(committer.files, {closed.transaction, {}, base}, committer);
    closed.change = committer.store.changes.newest();
    closed.changes = changes_of(closed);
    closed.log_ready = committer.fsync_log && committer.syncs.wants_log();
    restart_tracking(committer, closed.log_ready);
    closed.counters.next_inode = committer.names.next_inode;
    closed.counters.inode_count = committer.names.inode_count;
    closed.counters.reserved_blocks = static_cast<uint64_t>(committer.files.reserved_blocks.load());
    return closed;
}

// Steps 4b to 4e of the write path: everything durable, then the superblocks, durable too.
Status make_durable(Store& store, Generation generation, const BlockRef& root, uint64_t& covered)
{
    const bool map_late = is_mutant(CommitMutant::kMapAfterSuperblock);
    CW_TRY(store.volume.make_durable(map_late ? Volume::MapWrite::kPrepare : Volume::MapWrite::kNow,
                                     generation, root, covered));
    store.volume.commit_done(store.allocator);
    return {};
}

// What readers get from now on.
Ref<const Committed> committed_as(Store& store, TransactionId transaction, Generation generation,
                                  CommittedTrees& trees)
{
    for (Ref<const Node>& node : trees.nodes)
        store.cache.insert(std::move(node));
    Ref<Committed> committed = make_ref<Committed>();
    committed->generation = generation;
    committed->transaction = transaction;
    committed->root_tree.root = trees.root;
    committed->file_tree = trees.file_tree;
    committed->checksum_tree = trees.checksum_tree;
    committed->free_space_tree = trees.free_space_tree;
    committed->remap_tree = trees.remap_tree;
    return Ref<const Committed>(committed.get());
}

void release_freed(Store& store)
{
    const auto all_released = store.timeline.take_released();
    for (const Timeline::Released& released : all_released)
        store.allocator.release(released.transaction, released.generation);
    if (!all_released.empty())
        refresh_budget(store);
}

// Publishes a changed map without new trees, so that a commit finds room in groups that exist.
Status publish_map(Store& store)
{
    // Entries of the write-intent log stay: the commit that refers to their rows is still to come.
    uint64_t covered = 0;
    return make_durable(store, store.volume.superblock().generation.next(), store.volume.superblock().root,
                        covered);
}

Status apply_orders(Committer& committer, CommitOrder::When when)
{
    // An order is decided by what is durable: what was decided since the last commit comes first.
    if (!committer.orders.waiting(when))
        return {};
    if (committer.store.volume.map_changed())
        CW_TRY(publish_map(committer.store));
    if (!committer.orders.apply())
        return {};
    if (const Status published = publish_map(committer.store); !published.ok()) {
        committer.orders.failed(published);
        return published;
    }
    // From here on groups are made as it says.
    if (committer.fsync_log)
        committer.fsync_log->set_tolerance(committer.store.volume.tolerance());
    refresh_budget(committer.store);
    committer.orders.applied();
    return {};
}

bool hand_over_waiting(Committer& committer)
{
    const bool scrubbed = committer.scrub.hand_over_waiting();
    const bool copied = committer.replace.hand_over_waiting();
    return committer.catch_up.hand_over_waiting() || scrubbed || copied;
}

// One round flushes what was caught up, the next one calls it current.
Status publish_caught_up(Committer& committer)
{
    hand_over_waiting(committer);
    while (committer.store.volume.has_caught_up())
        CW_TRY(publish_map(committer.store));
    return {};
}

// What these columns lack is in the list of damage now, and what was recorded of them in the trees.
Status publish_waiting(Committer& committer)
{
    for (int rounds = hand_over_waiting(committer) ? 2 : 0; rounds > 0; --rounds)
        CW_TRY(publish_map(committer.store));
    return {};
}

// A scrub has come on, and nothing else changed.
Status publish_scrub(Store& store, const Scrub::Progress& progress)
{
    store.volume.note_scrub(progress.record, progress.verified);
    return publish_map(store);
}

// By which the bound may rise while room is made: lines about new groups.
constexpr uint64_t kNodeSlackBlocks = 64 * (kNodeBytes / kBlockBytes);

}  // namespace

Status Committer::ensure_room(uint64_t data_blocks, uint64_t node_blocks)
{
    sort_degraded_groups(store);
    open_node_groups(store, node_blocks);
    const uint64_t wanted = data_blocks + store.moving_blocks;
    if (store.allocator.numbers(kGroupData).free_row_blocks < wanted) {
        release_freed(store);
        discards.give_back();
        CW_TRY(plan_for(store, wanted, data_blocks));
    }
    if (store.volume.map_changed())
        CW_TRY(publish_map(store));
    // Before the first row is written in place superblocks say where to look for it after a crash.
    if (!store.volume.intent_log_live() && blocks_to_join(files.store, data_blocks) > 0) {
        store.volume.set_intent_log_live(true);
        CW_TRY(publish_map(store));
    }
    return {};
}

namespace {

// The blocks themselves belong to the commit that the flush is for; parity, and what a crash would leave of
// the blocks, to this one (I-36).
void note_rewritten(Allocator& allocator, Transaction& in_place)
{
    for (const BlockTable::Entry& entry : in_place.checksums.sorted()) {
        ++in_place.rewritten_stripes;
        for (uint32_t block = 0; block < kChecksumWindowBlocks; ++block)
            if ((entry.window.mask >> block & 1) != 0)
                allocator.note_rewritten(entry.window_address + uint64_t{block} * kBlockBytes, in_place.id);
    }
}

}  // namespace

Status Committer::commit_checksums(FlushBatch& batch)
{
    uint64_t covered = 0;
    if (is_mutant(CommitMutant::kFloorBeforeCommit)) {
        Array::FlushBarrier barrier(store.volume.array());
        CW_TRY(flush_members(store.volume.members()));
        barrier.flushed();
        store.volume.array().retire(barrier.covered);
        return {};
    }
    if (!is_mutant(CommitMutant::kBetweenUnnoted))
        note_rewritten(store.allocator, *store.in_place);
    const PendingChanges changes = changes_in(*store.in_place);
    open_node_groups(store, node_blocks_bound(store.ledger.metadata_room(), changes) + kNodeSlackBlocks);
    if (store.volume.map_changed())
        CW_TRY(publish_map(store));
    const Generation generation = store.volume.superblock().generation.next();
    const TransactionId id = store.in_place->id;
    CommittedTrees trees;
    CW_TRY(commit_trees(*this, *store.in_place, *batch.view.committed, nullptr, generation, trees));
    CW_TRY(make_durable(store, generation, trees.root, covered));
    store.volume.array().retire(covered);
    store.timeline.keep_between(committed_as(store, id, generation, trees));
    store.allocator.release_only(unread_frees(id));
    store.in_place.reset();
    ++checksum_commits;
    batch.view.committed = store.timeline.commit_view().committed;
    batch.generation = store.volume.superblock().generation.next();
    release_freed(store);
    refresh_budget(store);
    return {};
}

namespace {

// What the flush has changed is in the transaction.
void count_compression(const Files& files, ClosedTransaction& closed)
{
    VolumeCounters& counters = closed.counters;
    counters.compression_counted = files.compression_counted;
    if (!files.compression_counted)
        return;
    counters.compressed_file_blocks =
        files.compressed_file_blocks + closed.transaction->compressed_file_blocks;
    counters.compressed_blocks = files.compressed_blocks + closed.transaction->compressed_blocks;
}

Status run_commit(Committer& committer, ClosedTransaction& closed)
{
    const auto node_blocks = [&] {
        return node_blocks_bound(committer.store.ledger.metadata_room(), closed.changes);
    };
    reserve_inline(committer.files, closed.batch);
    closed.changes.bytes += closed.batch.inline_bytes;
    closed.batch.node_blocks = node_blocks() + kNodeSlackBlocks;
    CW_TRY(committer.ensure_room(closed.batch.block_count, closed.batch.node_blocks));
    refresh_budget(committer.store);
    const uint64_t nodes_bound = node_blocks();
    CW_TRY(write_flush(committer.files, closed.batch));
    const Generation generation = committer.store.volume.superblock().generation.next();
    // Flushing may have used up reservations of fallocate that the transaction's numbers still contain.
    closed.counters.reserved_blocks -= std::min(closed.counters.reserved_blocks, closed.batch.reserved_used);
    count_compression(committer.files, closed);
    CommittedTrees trees;
    if (is_mutant(CommitMutant::kNoRoom))
        return Err::kNoSpace;
    CW_TRY(commit_trees(committer, *closed.transaction, *closed.batch.view.committed, &closed.counters,
                        generation, trees));
    // What operations are admitted by, and so what keeps a commit from finding no room.
    CW_DEBUG_ASSERT(trees.node_blocks <= nodes_bound);
    const Generation number = committer.store.commit_number(closed.transaction->id);
    if (!is_mutant(CommitMutant::kTreeCommitsStand))
        committer.store.volume.set_tree_commits(number.value);
    if (closed.log_ready && !is_mutant(CommitMutant::kLogNotLive))
        committer.store.volume.set_fsync_log_live(true);
    committer.store.volume.note_scrub(closed.scrubbed.record, closed.scrubbed.verified);
    uint64_t covered = 0;
    CW_TRY(make_durable(committer.store, generation, trees.root, covered));
    committer.store.volume.array().retire(covered);
    committer.store.in_place.reset();
    if (committer.fsync_log)
        committer.fsync_log->retire(number);
    committer.syncs.committed(closed.change);
    committer.files.compressed_file_blocks = closed.counters.compressed_file_blocks;
    committer.files.compressed_blocks = closed.counters.compressed_blocks;
    // Before it is no longer counted as pending.
    refresh_budget(committer.store);
    committer.store.timeline.publish(
        committed_as(committer.store, closed.transaction->id, generation, trees));
    committer.store.ledger.set_transactions(committer.store.timeline.view());
    return {};
}

// The end of writing for an error that no single caller could be told of.
Status stop_for(Committer& committer, const char* reason, Status status)
{
    CW_LOG_ERROR("%s: %s", reason, err_text(status.err()));
    committer.stop(reason, status);
    return status;
}

// Nobody else may hold these inodes, and memory has the only copy of their data.
void keep_unwritten(Committer& committer, const FlushBatch& batch)
{
    committer.files.unwritten.insert(committer.files.unwritten.end(), batch.inodes.begin(),
                                     batch.inodes.end());
}

}  // namespace

Status Committer::commit()
{
    if (store.service.stopped())
        return Err::kShutdown;
    if (store.service.keeps_log())
        return {};
    release_freed(store);
    if (store.data_turns.exclusive() || store.node_turns.exclusive())
        discards.give_back();
    if (const Status applied = apply_orders(*this, CommitOrder::When::kBefore); !applied.ok())
        return stop_for(*this, "writing superblocks failed", applied);
    if (const Status current = publish_caught_up(*this); !current.ok())
        return stop_for(*this, "writing superblocks failed", current);
    empty_groups.step();
    if (const Status planned = plan_ahead(store); !planned.ok())
        return stop_for(*this, "planning block groups failed", planned);
    if (nothing_changed(store) && !scrub.wants_commit() && !store.damage.changed()) {
        answer_writers(store);  // a flush asked for beside this commit is not made
        return {};
    }
    // What the scrub has recorded anew and found lost so far is in what is committed now.
    Scrub::Progress scrubbed = scrub.take_progress();
    store.damage.store_changes(store);
    // Without room for what was found lost the scrub stays where it was.
    const ScrubRecord& durable = store.volume.superblock().scrub;
    if (store.damage.changed() && durable.started == scrubbed.record.started)
        scrubbed.record.stay_at(durable);
    if (nothing_changed(store)) {
        answer_writers(store);
        const bool news = scrubbed.record != durable || !scrubbed.verified.empty();
        const Status published = news ? publish_scrub(store, scrubbed) : Status();
        return published.ok() ? published : stop_for(*this, "writing superblocks failed", published);
    }
    plan_node_moves(store);
    balance.plan_moves();
    // One that comes later would find what was logged meanwhile in no commit.
    const bool order_after = orders.waiting(CommitOrder::When::kAfter);
    ClosedTransaction closed = close_transaction(*this);
    closed.scrubbed = std::move(scrubbed);
    store.commits.begun(closed.transaction->id);
    const Status status = run_commit(*this, closed);
    if (!status.ok()) {
        keep_unwritten(*this, closed.batch);
        return stop_for(*this, "a commit failed", status);
    }
    if (const Status applied = order_after ? apply_orders(*this, CommitOrder::When::kAfter) : Status();
        !applied.ok())
        return stop_for(*this, "writing superblocks failed", applied);
    if (const Status current = publish_waiting(*this); !current.ok())
        return stop_for(*this, "writing superblocks failed", current);
    sort_degraded_groups(store);
    const TransactionId id = closed.transaction->id;
    let_go(files, closed.batch);
    closed = ClosedTransaction();
    commit_count.fetch_add(1);
    release_freed(store);
    refresh_budget(store);
    store.commits.finished(id);
    empty_groups.step();  // before a flush fills what came free
    refresh_budget(store);
    return {};
}

bool Committer::confirmed() const
{
    const Superblock& superblock = store.volume.superblock();
    return superblock.generation > superblock.root.generation;
}

Status Committer::confirm()
{
    if (store.service.stopped() || store.service.keeps_log() || confirmed())
        return {};
    if (const Status status = publish_map(store); !status.ok())
        return stop_for(*this, "writing superblocks failed", status);
    return {};
}

Status Committer::commit_clean()
{
    if ((store.volume.superblock().unmounted && !store.volume.counters_changed()) || store.service.failed())
        return {};
    {
        WriteLock gate(store.gate);
        syncs.set_wants_log(false);
        restart_tracking(*this, false);
    }
    store.volume.set_intent_log_live(false);
    store.volume.set_fsync_log_live(false);
    store.volume.set_unmounting(true);
    const Status status = publish_map(store);
    store.volume.set_unmounting(false);
    return status;
}

Status Committer::flush()
{
    if (store.service.stopped())
        return Err::kShutdown;
    if (store.service.keeps_log())
        return {};
    // Inline frames of small files would find little room beside as many items.
    constexpr uint64_t kItemShare = 32;
    if (store.live.compression.load().on &&
        store.timeline.open()->items.byte_count() >= store.options.dirty_bytes_max / kItemShare)
        return commit();
    FlushBatch batch;
    {
        ReadLock gate(store.gate);
        batch = begin_flush(files, store.timeline.commit_view(), *this);
        // Its extents name addresses that no commit knows.
        if (batch.block_count > 0)
            batch.transaction->loggable = false;
    }
    reserve_inline(files, batch);
    Status status = ensure_room(batch.block_count, 0);
    if (status.ok())
        status = write_flush(files, batch);
    if (!status.ok()) {
        keep_unwritten(*this, batch);
        return stop_for(*this, "writing data failed", status);
    }
    let_go(files, batch);
    return {};
}

}  // namespace cowraid
