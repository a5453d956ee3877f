// SPDX-License-Identifier: MIT
// What no commit has made durable yet, and the room that is set aside for it: dirty data in memory, rows
// reserved for data, nodes reserved for changes. One lock, taken twice by an operation: when it begins, and
// when its changes are in memory.
//
// Data: every dirty block and every block that fallocate reserved has a place in a free row. Nodes: a commit
// of everything pending surely has room for its nodes. Pending are the changes of the two transactions, dirty
// data, and what operations that run have reserved. Changes only ever go from a reservation over dirty data
// to items of a transaction, and are let go under the lock, so that whoever holds it misses none.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>

#include "base/mutex.h"
#include "base/units.h"
#include "fs/txn/completion.h"
#include "fs/txn/transaction.h"
#include "fs/volume/node_bound.h"

namespace cowraid {

// How much of the room for nodes a reservation leaves alone. Commits of checksums may use what is left: it is
// back after the commit that they precede.
enum class Leave : uint8_t {
    kReserve,  // what is kept back for operations that free space
    kMoves,  // where nodes have parity, half of that: for nodes to be moved, which is what frees rows there
    kNothing,  // moves themselves
};

// What must be free in groups for nodes of file trees, for those of the other trees, and in all these, for a
// commit that takes `bound` beside what it must leave.
struct NodeNeed {
    uint64_t file_blocks = 0, system_blocks = 0, all_blocks = 0;
};
NodeNeed node_need(const MetadataRoom& room, const NodeBound& bound, Leave leave);

// What an operation leaves when its changes are in memory.
struct LedgerChange {
    uint64_t dirty_blocks = 0;  // more than before
    DirtyRuns dirty_runs;
    uint64_t released_data = 0;  // blocks reserved and not needed
    PendingChanges released_changes;
};

// What a change of as many items takes, whatever is in them.
PendingChanges changes_of_items(uint32_t item_count);
// What erasing so many items of the checksum or free-space tree takes that are neighbours.
PendingChanges changes_of_left(uint64_t item_count);
// What so much dirty data, which has no items yet, will take.
PendingChanges changes_of_data(uint64_t blocks, DirtyRuns runs);
// The largest operation.
inline constexpr PendingChanges kLargestChange{
    .entries = 48, .bytes = 65536, .data_blocks = 256, .data_runs = 4, .front_runs = 4};
// What is in one transaction; its dirty data is not.
PendingChanges changes_in(const Transaction& transaction);

// Thread-safe.
class Ledger {
public:
    explicit Ledger(uint64_t dirty_bytes_max);

    // Both in one step: data is reserved as by reserve_data(), `changes` as by try_reserve_changes() with
    // Leave::kReserve. False: neither is.
    [[nodiscard]] bool reserve_write(const PendingChanges& changes, uint64_t data_blocks);
    void apply(const LedgerChange& change);

    // Dirty data. Writers are slowed down in two steps. Above a first bound a write is applied and its answer
    // waits for room, which takes no thread. Only above `dirty_bytes_max` does a write wait before it is
    // applied. Between the two is room for one write of the largest size by each of 64 writers, or half of
    // `dirty_bytes_max` where that is less.
    void remove_dirty(uint64_t blocks, DirtyRuns runs_more, uint64_t released_data = 0);
    [[nodiscard]] uint64_t dirty_blocks() const { return dirty_blocks_.load(std::memory_order_relaxed); }
    // True while writers should ask for a flush: at half of `dirty_bytes_max`.
    [[nodiscard]] bool wants_flush() const { return dirty_blocks() >= dirty_blocks_max_ / 2; }
    // At or above the first bound: the answer to a write should wait.
    [[nodiscard]] bool holds_answers() const { return dirty_blocks() >= held_from_blocks_; }
    // Answers at once, with success, or from answer_waiting(), answer_all() or stop(). The caller asks for a
    // flush afterwards. No locks held.
    void answer_when_room(Completion* completion);
    // Answers as many of those that wait, oldest first, as there is room for their next write. True: others
    // still wait. No locks held.
    bool answer_waiting();
    // Answers all: who ends writing has made everything durable.
    void answer_all();
    // At or above `dirty_bytes_max`: writers must wait.
    [[nodiscard]] bool dirty_full() const { return dirty_blocks() >= dirty_blocks_max_; }
    // Waits until less than that is dirty. Called without locks. False when stop() was called.
    bool wait_for_room();
    // Nothing will be flushed from now on: nobody waits.
    void stop();

    // Rows for data.
    // False when there are not so many left.
    [[nodiscard]] bool reserve_data(uint64_t blocks);
    // Always succeeds: for the tail of a truncated file, and for what fallocate reserved already.
    void reserve_data_anyway(uint64_t blocks);
    void release_data(uint64_t blocks);
    // In one step: `blocks` that were reserved were taken from the allocator, which with the slots now offers
    // `room`, what is kept back left out. Commit thread.
    void data_taken(uint64_t blocks, uint64_t room);
    // Reservations must be content with `room` at most from now on, until data_taken(). False, and nothing
    // changes, when they are more. Commit thread.
    [[nodiscard]] bool try_lower_room(uint64_t room);
    // So much less than it is, or none.
    [[nodiscard]] bool try_give_up_room(uint64_t blocks);
    [[nodiscard]] uint64_t reserved_data() const;
    // Blocks that could still be reserved.
    [[nodiscard]] uint64_t data_available() const;

    // Nodes for changes.
    // The transactions whose changes are pending; the second may be null. Requires that none is closed
    // meanwhile.
    void set_transactions(const View& view);
    // Commit thread.
    void set_metadata_room(const MetadataRoom& room);
    [[nodiscard]] MetadataRoom metadata_room() const;
    // If a commit of them and of all that is pending surely fits beside what it must leave.
    [[nodiscard]] bool try_reserve_changes(const PendingChanges& own, Leave leave);
    void reserve_changes_anyway(const PendingChanges& own);
    // Whether `changes` would fit if nothing else were pending and `returning` blocks were free again.
    [[nodiscard]] bool fits_alone(const PendingChanges& changes, uint64_t returning) const;

private:
    [[nodiscard]] bool fits(const PendingChanges& own, Leave leave) const CW_REQUIRES(mutex_);
    void set_dirty(uint64_t blocks, DirtyRuns runs) CW_REQUIRES(mutex_);
    void release(uint64_t data_blocks) CW_REQUIRES(mutex_);

    const uint64_t dirty_blocks_max_, held_from_blocks_;
    mutable Mutex mutex_{LockRank::kLedger};
    std::atomic<uint64_t> dirty_blocks_{0};  // changed under the mutex
    DirtyRuns dirty_runs_ CW_GUARDED_BY(mutex_);
    CondVar room_;
    std::deque<Completion*> waiting_ CW_GUARDED_BY(mutex_);
    bool stopped_ CW_GUARDED_BY(mutex_) = false;

    uint64_t data_room_ CW_GUARDED_BY(mutex_) = 0;
    uint64_t reserved_data_ CW_GUARDED_BY(mutex_) = 0;

    Ref<Transaction> open_ CW_GUARDED_BY(mutex_);
    Ref<Transaction> committing_ CW_GUARDED_BY(mutex_);
    MetadataRoom metadata_room_ CW_GUARDED_BY(mutex_);
    PendingChanges reserved_changes_ CW_GUARDED_BY(mutex_);
};

// Changes that are reserved for as long as it lives.
class ChangeReservation {
public:
    explicit ChangeReservation(Ledger& ledger) : ledger_(ledger) { }
    ~ChangeReservation() { ledger_.apply({.released_changes = own_}); }
    ChangeReservation(const ChangeReservation&) = delete;
    ChangeReservation& operator=(const ChangeReservation&) = delete;

    // As Ledger::try_reserve_changes(), once.
    [[nodiscard]] bool take(const PendingChanges& own, Leave leave);

private:
    Ledger& ledger_;
    PendingChanges own_;
};

}  // namespace cowraid
