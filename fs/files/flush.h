// SPDX-License-Identifier: MIT
// Dirty file data to members: gathered over all files, allocated together, written as rows and stripes,
// recorded as extents and checksums of one transaction (design 5.2 and 5.3).
//
// An inode's blocks move from `dirty` to `flushing` under its mutex. While it has flushing blocks, only the
// flush changes its extent items; wait_for_flush() is how truncate and its like wait their turn.
#pragma once

#include <memory>
#include <vector>

#include "fs/files/files.h"
#include "fs/txn/ledger.h"

namespace cowraid {

struct FlushBatch;

// Who makes room on the way of a flush. Implemented by the committer, which stands above. Commit thread.
class FlushHost {
public:
    virtual ~FlushHost() = default;
    // Makes room for `data_blocks` more blocks of data as far as slots allow, and in degraded groups for a
    // commit's `node_blocks`: groups that take them are open and in a durable map. Announces the write-intent
    // log where data goes into partial rows.
    virtual Status ensure_room(uint64_t data_blocks, uint64_t node_blocks) = 0;
    // A commit of the last trees and of checksums of rows written in place since (Store::in_place), and of
    // nothing else: their blocks stay free. Files are as they were, so that records of the fsync log live on;
    // entries of the write-intent log are dead (I-23). No write in place is under way. The batch goes on with
    // the new trees.
    virtual Status commit_checksums(FlushBatch& batch) = 0;
};

struct FlushBatch {
    FlushHost* host = nullptr;
    Ref<Transaction> transaction;
    View view;  // has the transaction as its newest layer
    Generation generation;  // the next commit's, as far as is known: a commit of checksums may come before
    std::vector<Ref<Inode>> inodes;
    uint64_t block_count = 0;
    DirtyRuns runs;  // that they are
    uint64_t small_files = 0;  // to be compressed, of which all is in it
    uint64_t inline_bytes = 0;  // of items in nodes that their frames may take, see reserve_inline()
    std::unique_ptr<ChangeReservation> inline_room;
    uint64_t node_blocks = 0;  // that the commit after it may take; 0: none follows at once
    uint64_t reserved_used = 0;  // blocks that fallocate had reserved and this batch stored
};

// Moves everything dirty to flushing, on behalf of the newest layer of `view`. Requires that no operation is
// inside the gate on behalf of another transaction: the gate held exclusively, or shared with it open.
FlushBatch begin_flush(Files& files, View view, FlushHost& host);

// Reserves room in nodes for the frames of small files, as far as there is plenty. Commit thread, before room
// for the batch's nodes is made.
void reserve_inline(Files& files, FlushBatch& batch);

// Writes and records the batch. When the write-intent log is full it commits checksums on the way, so that
// batch.view may have newer trees afterwards. Commit thread. An error leaves the data in memory and must stop
// the filesystem.
Status write_flush(Files& files, FlushBatch& batch);

// Lets go of the batch's inodes. Those that nobody remembers leave memory: their dirty data kept them there.
void let_go(Files& files, FlushBatch& batch);

// Answers writers for whose next write there is room. Those who still wait are answered by the next flush,
// which it asks for. No locks held.
void answer_writers(Store& store);

// How many of `block_count` blocks a flush would put into rows that hold others.
uint64_t blocks_to_join(const Store& store, uint64_t block_count);

// A pointer for each data block of the region; null: a pad.
struct RegionWrite {
    explicit RegionWrite(const RowRegion& written) : region(written), blocks(written.block_count()) { }

    RowRegion region;
    std::vector<const std::byte*> blocks;
};
// Writes them as one batch of the array, and records the checksums of every block of them, parity and pads
// included.
Status write_regions(Store& store, Transaction& transaction, std::span<const RegionWrite> writes);
// Cuts a region of many stripes into parts of whole stripes, each of at most about `blocks_max` blocks.
std::vector<RowRegion> split_region(const RowRegion& region, uint64_t blocks_max);

// Waits until the inode has no flushing blocks. kWouldWait. Called without locks.
Status wait_for_flush(Files& files, Inode& inode);

// Adds `delta` to the inode's count of stored blocks, in the item of `transaction` and in newer ones.
// Requires inode.mutex.
Status adjust_data_blocks(Store& store, Transaction& transaction, const View& view, Inode& inode,
                          int64_t delta);

}  // namespace cowraid
