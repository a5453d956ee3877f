// SPDX-License-Identifier: MIT
// From the open transaction to a durable generation (design 5.4), and the thread that does it.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "fs/core.h"

namespace cowraid {

struct FlushBatch;

// One round of the commit thread's work: commits the open transaction if anything changed. Commit thread,
// or the only thread of a manual_commit filesystem. An error has stopped the filesystem.
Status commit_now(FilesystemCore& core);
// Superblocks once more, with the next generation, unless there are such since the last commit. They show
// that every member had that commit: one that lacks it is two behind, which no crash explains (I-16). Threads
// as for commit_now(), as are errors.
Status confirm_commit(FilesystemCore& core);
bool commit_confirmed(const FilesystemCore& core);
// After the last commit of a mount: superblocks say that there is nothing to be recovered.
Status commit_clean(FilesystemCore& core);
// Writes dirty data of the open transaction without committing.
Status flush_now(FilesystemCore& core);
// Number of a commit of checksums after the last commit.
TransactionId between_commits(const FilesystemCore& core);
// A commit of the last trees and of checksums of rows written in place since (FilesystemCore::in_place), and
// of nothing else: their blocks stay free. Files are as they were, so that records of the fsync log live on;
// entries of the write-intent log are dead (I-23). No write in place is under way. Commit thread, within a
// flush, whose batch goes on with the new trees.
Status commit_checksums(FilesystemCore& core, FlushBatch& batch);
// Makes room for `data_blocks` more blocks of data as far as slots allow, and in degraded groups for a
// commit's `node_blocks`: groups that take them are open and in a durable map. Announces the write-intent log
// where data goes into holes. Commit thread.
Status ensure_room(FilesystemCore& core, uint64_t data_blocks, uint64_t node_blocks);
// A commit that contains everything done before the call; waits for it. No locks held.
Status force_commit(FilesystemCore& core);
// A flush soon, or at once where no thread would do it.
void ask_for_flush(FilesystemCore& core);

// Plans groups while the free room of published ones is short of what the next commits may need. Plans are
// in the map of the next commit and take data after it.
Status plan_ahead(FilesystemCore& core);
// Blocks in free rows that groups for data should have, and those for metadata or system trees.
uint64_t data_ahead(const FilesystemCore& core);
uint64_t metadata_ahead(const FilesystemCore& core, uint32_t content);
// Of groups of that content that are neither degraded nor closed.
uint64_t blocks_of_whole_groups(const FilesystemCore& core, uint32_t content);
// Plans data groups until `wanted_blocks` are free or the slots for data run out. For `taken_blocks` of them,
// which writers were told are safe: opens degraded groups, then takes any slots, those of members that are
// away too. The caller publishes the map.
Status plan_for(FilesystemCore& core, uint64_t wanted_blocks, uint64_t taken_blocks);
// Groups with columns on members out of service become degraded: they take blocks only where others do not
// suffice. Mount, every commit and flush.
void close_degraded_groups(FilesystemCore& core);
// Opens degraded groups for nodes until others and they have `node_blocks` in free rows. The caller publishes
// the map.
void open_node_groups(FilesystemCore& core, uint64_t node_blocks);
// By how many blocks the capacity falls when data groups that hold nothing and lack a member have given their
// slots back: groups made in their place, of members that are present, have fewer data columns.
enum class Emptied : uint8_t {
    kOffered,  // groups whose room is offered to writers
    kAll,  // those on their way to be empty or out of the map, too
};
uint64_t narrowing_blocks(const FilesystemCore& core, Emptied emptied);
// Recomputes what the budget may promise. `taken_blocks` of data promises have just been taken from the
// allocator.
void refresh_budget(FilesystemCore& core, uint64_t taken_blocks = 0);

}  // namespace cowraid
