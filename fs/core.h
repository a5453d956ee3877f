// SPDX-License-Identifier: MIT
// What the files of fs/ share. Filesystem (fs/filesystem.h) is a facade over it.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "alloc/allocator.h"
#include "alloc/join_policy.h"
#include "base/event.h"
#include "base/mutex.h"
#include "btree/node_cache.h"
#include "fs/commit/background.h"
#include "fs/commit/sync_queue.h"
#include "fs/files/dirty_account.h"
#include "fs/files/inode.h"
#include "fs/filesystem.h"
#include "fs/maintain/cleaner.h"
#include "fs/maintain/empty_groups.h"
#include "fs/txn/block_state.h"
#include "fs/txn/change_tracker.h"
#include "fs/txn/commit_queue.h"
#include "fs/txn/item_store.h"
#include "fs/txn/remap.h"
#include "fs/txn/space_budget.h"
#include "fs/txn/transaction.h"
#include "fs/volume/mount_options.h"
#include "fs/volume/volume.h"
#include "journal/fsync_log.h"

namespace cowraid {

// What a mount found in the fsync log.
struct ReplayResult {
    bool log_live = false;  // there was a log to look at; the next commit makes all in it dead
    uint64_t next_sequence = 1;  // for FsyncLog
    uint64_t record_count = 0;
};

struct FilesystemCore {
    FilesystemCore(const MountOptions& mount_options, std::unique_ptr<Volume> opened_volume,
                   Ref<Transaction> open, Ref<const Committed> committed);
    ~FilesystemCore();

    const MountOptions options;
    std::unique_ptr<Volume> volume;
    Timeline timeline;
    ArrayNodeReader node_reader;
    NodeCache cache;
    ItemStore store;
    TreeSpaceSource space_source;
    Allocator allocator;
    ChecksumLookup checksums;
    RemapLookup remap;
    ChangeTracker changes;
    InodeTable inodes;

    // Shared by every changing operation; exclusive for the moment in which a transaction is closed.
    RwLock gate{LockRank::kOperationGate};
    // One change between reading and writing at a time: its commits are made by the caller's thread.
    Mutex remount_mutex{LockRank::kRemount};
    // One directory rename at a time, so that no cycle can arise.
    Mutex rename_mutex{LockRank::kRename};
    DirtyAccount dirty;
    SpaceBudget space;
    RoomGate data_gate, node_gate;  // to room for data, for nodes
    const JoinPolicy join_policy;
    Cleaner cleaner;
    EmptyGroups empty_groups;
    Event flush_done;  // some inode may have no flushing blocks any more
    CommitQueue commits;
    // Null until the filesystem is written to; then it stays.
    std::unique_ptr<FsyncLog> fsync_log;
    SyncQueue syncs;
    RemovalQueue removals;

    std::atomic<uint64_t> next_inode{0};
    std::atomic<uint64_t> inode_count{0};
    std::atomic<int64_t> reserved_blocks{0};  // promised by fallocate
    std::atomic<uint64_t> removed_bytes{0};  // in items of deleted files, since a commit was asked for them
    std::atomic<uint64_t> commit_count{0};
    std::atomic<uint64_t> checksum_commits{0};  // on the way of flushes (fs/commit/commit.h)
    // Superblock::tree_commits of a transaction's commit is its id and this.
    std::atomic<uint64_t> commits_before{0};
    std::atomic<uint64_t> recovered_rows{0};  // by this mount
    std::atomic<uint64_t> replayed_records{0};  // by this mount
    std::atomic<bool> read_only{false};
    // After an error that a commit could not carry: everything that changes fails, reads go on.
    std::atomic<bool> stopped{false};
    std::atomic<const char*> read_only_reason{""};  // static text, for the user
    std::atomic<const char*> stop_reason{""};  // the same, once stopped

    // Of a mount: what is in the open transaction from logs, and must be committed before anything is logged.
    ReplayResult replay;
    bool replay_done = false;
    // Mounted read-only over a log that is in use: nothing is written, dirty data stays in memory.
    std::atomic<bool> keeps_log{false};
    // Rows that were recovered are not committed yet: none is written in place.
    bool whole_rows_only = false;
    // Checksums of rows written in place since the last commit, for a commit of nothing else
    // (fs/commit/commit.h). Null while there are none. Commit thread.
    Ref<Transaction> in_place;
    // With data that a failed commit or flush left in memory: reads find it there.
    std::vector<Ref<Inode>> unwritten;

    Background background;  // last: its threads use everything above

    // What its records of the fsync log, and its commit, are numbered by.
    [[nodiscard]] Generation commit_number(TransactionId transaction) const
    {
        return {commits_before + transaction.value};
    }
    // Stops the filesystem for writing because of `status`, and says why, once. Who waits for a commit is
    // answered. Commit thread. No locks held.
    void stop(const char* reason, Status status);
};

}  // namespace cowraid
