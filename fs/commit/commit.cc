// SPDX-License-Identifier: MIT
#include "fs/commit/commit.h"

#include <algorithm>

#include "base/log.h"
#include "device/superblock_store.h"
#include "fs/commit/commit_trees.h"
#include "fs/commit/fsync_collect.h"
#include "fs/commit/node_moves.h"
#include "fs/files/flush.h"
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
    uint64_t change = 0;  // number of the newest change in it
    bool log_ready = false;  // what comes after it may be logged, once it is committed
};

bool nothing_to_commit(FilesystemCore& core)
{
    return !core.timeline.open()->dirty && !core.volume->map_changed() &&
           !core.volume->member_failed_since_commit();
}

// Everything that its trees will have to record.
PendingChanges changes_of(const ClosedTransaction& closed)
{
    PendingChanges changes = changes_in(*closed.transaction);
    changes.data_blocks = closed.batch.block_count;
    changes.data_runs = closed.batch.run_count;
    return changes;
}

// The one moment in which no operation runs: what returned before it is in, the rest is not.
ClosedTransaction close_transaction(FilesystemCore& core)
{
    WriteLock gate(core.gate);
    ClosedTransaction closed;
    const Ref<const Committed> base = core.timeline.commit_view().committed;
    closed.transaction = core.timeline.close_open();
    closed.batch = begin_flush(core, {closed.transaction, {}, base});
    closed.change = core.changes.newest();
    closed.changes = changes_of(closed);
    closed.log_ready = core.fsync_log && core.syncs.wants_log();
    restart_tracking(core, closed.log_ready);
    closed.counters.next_inode = core.next_inode;
    closed.counters.inode_count = core.inode_count;
    closed.counters.reserved_blocks = static_cast<uint64_t>(core.reserved_blocks.load());
    return closed;
}

// Steps 4b to 4e of the write path: everything durable, then the superblocks, durable too.
Status make_durable(FilesystemCore& core, Generation generation, const BlockRef& root, uint64_t& covered)
{
    const bool map_late = is_mutant(core.options, CommitMutant::kMapAfterSuperblock);
    CW_TRY(core.volume->make_durable(map_late ? Volume::MapWrite::kPrepare : Volume::MapWrite::kNow,
                                     generation, root, covered));
    core.volume->commit_done(core.allocator);
    return {};
}

// What readers get from now on.
Ref<const Committed> committed_as(FilesystemCore& core, TransactionId transaction, Generation generation,
                                  CommittedTrees& trees)
{
    for (Ref<const Node>& node : trees.nodes)
        core.cache.insert(std::move(node));
    Ref<Committed> committed = make_ref<Committed>();
    committed->generation = generation;
    committed->transaction = transaction;
    committed->file_tree = trees.file_tree;
    committed->checksum_tree = trees.checksum_tree;
    committed->free_space_tree = trees.free_space_tree;
    committed->remap_tree = trees.remap_tree;
    return Ref<const Committed>(committed.get());
}

void release_freed(FilesystemCore& core)
{
    const auto all_released = core.timeline.take_released();
    for (const Timeline::Released& released : all_released)
        core.allocator.release(released.transaction, released.generation);
    if (!all_released.empty())
        refresh_budget(core);
}

// Publishes a changed map without new trees, so that a commit finds room in groups that exist.
Status publish_map(FilesystemCore& core)
{
    // Entries of the write-intent log stay: the commit that refers to their rows is still to come.
    uint64_t covered = 0;
    return make_durable(core, core.volume->superblock().generation.next(), core.volume->superblock().root,
                        covered);
}

// By which the bound may rise while room is made: lines about new groups.
constexpr uint64_t kNodeSlackBlocks = 64 * (kNodeBytes / kBlockBytes);

}  // namespace

Status ensure_room(FilesystemCore& core, uint64_t data_blocks, uint64_t node_blocks)
{
    close_degraded_groups(core);
    open_node_groups(core, node_blocks);
    const uint64_t wanted = data_blocks + core.cleaner.reserved_blocks();
    if (core.allocator.numbers(kGroupData).free_row_blocks < wanted) {
        release_freed(core);
        CW_TRY(plan_for(core, wanted, data_blocks));
    }
    if (core.volume->map_changed())
        CW_TRY(publish_map(core));
    // Before the first row is written in place superblocks say where to look for it after a crash.
    if (!core.volume->intent_log_live() && blocks_to_join(core, data_blocks) > 0) {
        core.volume->set_intent_log_live(true);
        CW_TRY(publish_map(core));
    }
    return {};
}

TransactionId between_commits(const FilesystemCore& core)
{
    const TransactionId last = core.timeline.commit_view().committed->transaction;
    return {last.value, last.part + 2};  // the one between is unread_frees()
}

Status commit_checksums(FilesystemCore& core, FlushBatch& batch)
{
    uint64_t covered = 0;
    if (is_mutant(core.options, CommitMutant::kFloorBeforeCommit)) {
        Array::FlushBarrier barrier(core.volume->array());
        CW_TRY(flush_members(core.volume->members()));
        barrier.flushed();
        core.volume->array().retire(barrier.covered);
        return {};
    }
    const PendingChanges changes = changes_in(*core.in_place);
    open_node_groups(core, node_blocks_bound(core.space.metadata_room(), changes) + kNodeSlackBlocks);
    if (core.volume->map_changed())
        CW_TRY(publish_map(core));
    const Generation generation = core.volume->superblock().generation.next();
    const TransactionId id = core.in_place->id;
    CommittedTrees trees;
    CW_TRY(commit_trees(core, *core.in_place, *batch.view.committed, nullptr, generation, trees));
    CW_TRY(make_durable(core, generation, trees.root, covered));
    core.volume->array().retire(covered);
    core.timeline.keep_between(committed_as(core, id, generation, trees));
    core.allocator.release_only(unread_frees(id));
    core.in_place.reset();
    ++core.checksum_commits;
    batch.view.committed = core.timeline.commit_view().committed;
    batch.generation = core.volume->superblock().generation.next();
    release_freed(core);
    refresh_budget(core);
    return {};
}

namespace {

Status run_commit(FilesystemCore& core, ClosedTransaction& closed)
{
    const auto node_blocks = [&] {
        return node_blocks_bound(core.space.metadata_room(), closed.changes);
    };
    closed.batch.node_blocks = node_blocks() + kNodeSlackBlocks;
    CW_TRY(ensure_room(core, closed.batch.block_count, closed.batch.node_blocks));
    refresh_budget(core);
    const uint64_t nodes_bound = node_blocks();
    CW_TRY(write_flush(core, closed.batch));
    const Generation generation = core.volume->superblock().generation.next();
    // Flushing may have used up promises of fallocate that the transaction's numbers still contain.
    closed.counters.reserved_blocks -= std::min(closed.counters.reserved_blocks, closed.batch.reserved_used);
    CommittedTrees trees;
    if (is_mutant(core.options, CommitMutant::kNoRoom))
        return Err::kNoSpace;
    CW_TRY(commit_trees(core, *closed.transaction, *closed.batch.view.committed, &closed.counters, generation,
                        trees));
    // What operations are admitted by, and so what keeps a commit from finding no room.
    CW_DEBUG_ASSERT(trees.node_blocks <= nodes_bound);
    const Generation number = core.commit_number(closed.transaction->id);
    if (!is_mutant(core.options, CommitMutant::kTreeCommitsStand))
        core.volume->set_tree_commits(number.value);
    if (closed.log_ready && !is_mutant(core.options, CommitMutant::kLogNotLive))
        core.volume->set_fsync_log_live(true);
    uint64_t covered = 0;
    CW_TRY(make_durable(core, generation, trees.root, covered));
    core.volume->array().retire(covered);
    core.in_place.reset();
    if (core.fsync_log)
        core.fsync_log->retire(number);
    core.syncs.committed(closed.change);
    // Before it is no longer counted as pending.
    refresh_budget(core);
    core.timeline.publish(committed_as(core, closed.transaction->id, generation, trees));
    return {};
}

// The end of writing for an error that no single caller could be told of.
Status stop_for(FilesystemCore& core, const char* reason, Status status)
{
    CW_LOG_ERROR("%s: %s", reason, err_text(status.err()));
    core.stop(reason, status);
    return status;
}

// Nobody else may hold these inodes, and memory has the only copy of their data.
void keep_unwritten(FilesystemCore& core, const FlushBatch& batch)
{
    core.unwritten.insert(core.unwritten.end(), batch.inodes.begin(), batch.inodes.end());
}

}  // namespace

Status commit_now(FilesystemCore& core)
{
    if (core.stopped)
        return Err::kShutdown;
    if (core.keeps_log)
        return {};
    release_freed(core);
    core.empty_groups.step();
    if (const Status planned = plan_ahead(core); !planned.ok())
        return stop_for(core, "planning block groups failed", planned);
    if (nothing_to_commit(core))
        return {};
    plan_node_moves(core);
    ClosedTransaction closed = close_transaction(core);
    core.commits.begun(closed.transaction->id);
    const Status status = run_commit(core, closed);
    if (!status.ok()) {
        keep_unwritten(core, closed.batch);
        return stop_for(core, "a commit failed", status);
    }
    close_degraded_groups(core);
    const TransactionId id = closed.transaction->id;
    closed = ClosedTransaction();
    core.commit_count.fetch_add(1);
    release_freed(core);
    refresh_budget(core);
    core.commits.finished(id);
    core.empty_groups.step();  // before a flush fills what came free
    refresh_budget(core);
    return {};
}

bool commit_confirmed(const FilesystemCore& core)
{
    const Superblock& superblock = core.volume->superblock();
    return superblock.generation > superblock.root.generation;
}

Status confirm_commit(FilesystemCore& core)
{
    if (core.stopped || core.keeps_log || commit_confirmed(core))
        return {};
    if (const Status status = publish_map(core); !status.ok())
        return stop_for(core, "writing superblocks failed", status);
    return {};
}

Status commit_clean(FilesystemCore& core)
{
    if (core.volume->superblock().unmounted || core.stopped)
        return {};
    {
        WriteLock gate(core.gate);
        core.syncs.set_wants_log(false);
        restart_tracking(core, false);
    }
    core.volume->set_intent_log_live(false);
    core.volume->set_fsync_log_live(false);
    core.volume->set_unmounting(true);
    const Status status = publish_map(core);
    core.volume->set_unmounting(false);
    return status;
}

Status flush_now(FilesystemCore& core)
{
    if (core.stopped)
        return Err::kShutdown;
    if (core.keeps_log)
        return {};
    FlushBatch batch;
    {
        ReadLock gate(core.gate);
        batch = begin_flush(core, core.timeline.commit_view());
        // Its extents name addresses that no commit knows.
        if (batch.block_count > 0)
            batch.transaction->loggable = false;
    }
    Status status = ensure_room(core, batch.block_count, 0);
    if (status.ok())
        status = write_flush(core, batch);
    if (!status.ok()) {
        keep_unwritten(core, batch);
        return stop_for(core, "writing data failed", status);
    }
    return {};
}

Status force_commit(FilesystemCore& core)
{
    const Ref<Transaction> open = core.timeline.open();
    open->dirty = true;
    if (core.options.manual_commit)
        return commit_now(core);
    return core.commits.wait(open->id);
}

void ask_for_flush(FilesystemCore& core)
{
    if (core.options.manual_commit)
        flush_now(core).ignore();  // an error has stopped the filesystem; the writer sees that
    else
        core.commits.request_flush();
}

}  // namespace cowraid
