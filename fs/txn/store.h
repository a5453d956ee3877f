// SPDX-License-Identifier: MIT
// The trees of the volume, the transactions over them, and the room for both: what files, names and commits
// share. Its parts lock themselves, except where noted.
#pragma once

#include <atomic>
#include <set>

#include "alloc/allocator.h"
#include "alloc/join_policy.h"
#include "base/mutex.h"
#include "base/random.h"
#include "btree/node_cache.h"
#include "fs/txn/block_state.h"
#include "fs/txn/change_counter.h"
#include "fs/txn/commit_driver.h"
#include "fs/txn/commit_queue.h"
#include "fs/txn/damage_list.h"
#include "fs/txn/item_store.h"
#include "fs/txn/ledger.h"
#include "fs/txn/remap.h"
#include "fs/txn/room_turns.h"
#include "fs/txn/service_state.h"
#include "fs/txn/transaction.h"
#include "fs/txn/work_budget.h"
#include "fs/volume/mount_options.h"
#include "fs/volume/volume.h"

namespace cowraid {

// Options of the mount that a remount may change. Thread-safe.
struct LiveOptions {
    explicit LiveOptions(const MountOptions& options)
        : access_time(options.access_time),
          commit_seconds(options.commit_seconds),
          clean(options.clean),
          compression(options.compression),
          directory_times(options.directory_times),
          sync(options.sync),
          dirsync(options.dirsync),
          discard(options.discard)
    {
    }

    std::atomic<AccessTime> access_time;
    std::atomic<uint32_t> commit_seconds;
    std::atomic<bool> clean;
    std::atomic<CompressionChoice> compression;
    std::atomic<bool> directory_times, sync, dirsync;
    std::atomic<DiscardMode> discard;
};

struct Store {
    // `opened_volume` outlives the object.
    Store(const MountOptions& mount_options, Volume& opened_volume, Ref<Transaction> open,
          Ref<const Committed> committed);
    ~Store();
    Store(const Store&) = delete;
    Store& operator=(const Store&) = delete;

    const MountOptions options;  // as it was mounted
    LiveOptions live;
    Volume& volume;
    Timeline timeline;
    ArrayNodeReader node_reader;
    NodeCache cache;
    ItemStore items;
    TreeSpaceSource space_source;
    Allocator allocator;
    DamageList damage;
    ChecksumLookup checksums;
    RemapLookup remap;
    ChangeCounter changes;

    // Shared by every changing operation; exclusive for the moment in which a transaction is closed.
    RwLock gate{LockRank::kOperationGate};
    Ledger ledger;
    RoomTurns data_turns, node_turns;  // for room for data, for nodes
    const JoinPolicy join_policy;
    CommitQueue commits;
    CommitDriver* driver = nullptr;  // the committer, from its construction on

    WorkBudget budget;  // for work in the background, beside users
    ServiceState service;
    // Of inodes that this mount makes, for file handles. Drawn for each mount, not 0, and of 32 bits as the
    // kernel's: after a crash numbers of inodes that were not durable are given again.
    const uint64_t inode_generation = (random_u64() & UINT32_MAX) | 1;
    // In free rows, what the block group being emptied still needs: writers rather join rows.
    std::atomic<uint64_t> moving_blocks{0};
    // Groups that the balance under way cannot empty: nodes in them are in no tree, or below one that cannot
    // be read. Commit thread.
    std::set<VolumeAddress> stuck_groups;
    // Checksums of rows written in place since the last commit, for a commit of nothing else
    // (FlushHost::commit_checksums). Null while there are none. Commit thread.
    Ref<Transaction> in_place;

    // Writers should ask for a flush. One that compresses begins early: processors would do nothing until
    // half of what may be dirty is there.
    [[nodiscard]] bool wants_flush() const
    {
        return ledger.wants_flush() ||
               (live.compression.load().on && ledger.dirty_blocks() >= 2 * kFlushWindowBlocks);
    }

    // What its records of the fsync log, and its commit, are numbered by: Superblock::tree_commits.
    [[nodiscard]] Generation commit_number(TransactionId transaction) const
    {
        return {commits_before_ + transaction.value};
    }
    // The open transaction will be the commit of this number, those after it follow.
    void number_commits_from(Generation number)
    {
        commits_before_ = number.value - timeline.open()->id.value;
    }

private:
    std::atomic<uint64_t> commits_before_{0};
};

}  // namespace cowraid
