// SPDX-License-Identifier: MIT
#include "fs/txn/ledger.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"

namespace cowraid {

namespace {

constexpr uint64_t kWriteBlocks = kMiB / kBlockBytes;  // of the largest write
constexpr uint64_t kWriters = 64;

uint64_t left_of(uint64_t reserve, Leave leave, bool nodes_have_parity)
{
    if (leave == Leave::kReserve)
        return reserve;
    return leave == Leave::kMoves && nodes_have_parity ? reserve / 2 : 0;
}

bool has_room(const MetadataRoom& room, const NodeBound& bound, uint64_t returning, Leave leave)
{
    const NodeNeed need = node_need(room, bound, leave);
    return need.file_blocks <= room.free_blocks + returning &&
           need.system_blocks <= room.system_free_blocks + returning &&
           need.all_blocks <= room.all_free_blocks + returning;
}

}  // namespace

NodeNeed node_need(const MetadataRoom& room, const NodeBound& bound, Leave leave)
{
    const uint64_t left = left_of(room.reserve_blocks, leave, room.nodes_have_parity);
    // Nodes of files may take for good what nodes of all trees can have.
    const bool shared = room.free_blocks + room.system_free_blocks > room.all_free_blocks;
    const Leave leave_system = shared && leave == Leave::kNothing ? Leave::kMoves : leave;
    const uint64_t system_left = left_of(room.system_reserve_blocks, leave_system, room.nodes_have_parity);
    return {.file_blocks = bound.file_blocks + left,
            .system_blocks = bound.system_blocks + std::max(system_left, bound.early_blocks),
            .all_blocks =
                bound.file_blocks + bound.system_blocks + std::max(left + system_left, bound.early_blocks)};
}

PendingChanges changes_of_items(uint32_t item_count)
{
    // Operations that change many items change neighbours: in leaves that hold at least as many of them.
    constexpr uint64_t kApart = 16;
    constexpr uint64_t kNeighbours = 32;
    const uint64_t apart = std::min<uint64_t>(item_count, kApart);
    const uint64_t more = item_count - apart;
    return {.entries = apart + divide_up(more, kNeighbours),
            .bytes = apart * 256 + more * 64,
            .freed_runs = item_count};
}

PendingChanges changes_of_left(uint64_t item_count)
{
    constexpr uint64_t kNeighbours = 12;  // of the largest in a leaf that is half full
    const uint64_t leaves = divide_up(item_count, kNeighbours);
    return {.freed_runs = leaves, .checksum_windows = leaves};
}

PendingChanges changes_of_data(uint64_t blocks, DirtyRuns runs)
{
    return {.data_blocks = blocks,
            .data_runs = static_cast<uint64_t>(runs.all),
            .front_runs = static_cast<uint64_t>(runs.front)};
}

PendingChanges changes_in(const Transaction& transaction)
{
    const uint64_t remapped = transaction.moved_to.window_count() + transaction.moved_from.window_count();
    constexpr uint64_t kWindowBytes = 64 * 9;
    PendingChanges changes = {
        .entries = transaction.items.entry_count(),
        .bytes = transaction.items.byte_count(),
        .freed_runs =
            transaction.items.entry_count() + transaction.rewritten_stripes + transaction.freed_frame_runs,
        .checksum_windows = transaction.checksums.window_count() + transaction.dropped.window_count(),
        .remap_windows = remapped,
        .remap_bytes = remapped * kWindowBytes,
        .moved_nodes = transaction.moved_nodes + transaction.emptied_file_nodes,
        .moved_system_nodes = transaction.emptied_system_nodes,
    };
    changes += changes_of_left(transaction.left_count);
    return changes;
}

Ledger::Ledger(uint64_t dirty_bytes_max)
    : dirty_blocks_max_(dirty_bytes_max / kBlockBytes),
      held_from_blocks_(dirty_blocks_max_ - std::min(dirty_blocks_max_ / 2, kWriters * kWriteBlocks))
{
}

// --- both ---

bool Ledger::reserve_write(const PendingChanges& changes, uint64_t data_blocks)
{
    MutexLock lock(mutex_);
    if (reserved_data_ + data_blocks > data_room_ || !fits(changes, Leave::kReserve))
        return false;
    reserved_data_ += data_blocks;
    reserved_changes_ += changes;
    return true;
}

void Ledger::apply(const LedgerChange& change)
{
    MutexLock lock(mutex_);
    set_dirty(dirty_blocks() + change.dirty_blocks, dirty_runs_ + change.dirty_runs);
    release(change.released_data);
    reserved_changes_ -= change.released_changes;
}

// --- dirty data ---

void Ledger::set_dirty(uint64_t blocks, DirtyRuns runs)
{
    dirty_blocks_.store(blocks, std::memory_order_relaxed);
    dirty_runs_ = runs;
    CW_ASSERT(runs.front >= 0 && runs.all >= runs.front && (blocks > 0 || runs.all == 0));
}

void Ledger::remove_dirty(uint64_t blocks, DirtyRuns runs_more, uint64_t released_data)
{
    MutexLock lock(mutex_);
    CW_ASSERT(blocks <= dirty_blocks());
    set_dirty(dirty_blocks() - blocks, dirty_runs_ + runs_more);
    release(released_data);
    if (!dirty_full())
        room_.notify_all();
}

void Ledger::answer_when_room(Completion* completion)
{
    {
        MutexLock lock(mutex_);
        if (holds_answers() && !stopped_) {
            waiting_.push_back(completion);
            return;
        }
    }
    completion->done({});
}

bool Ledger::answer_waiting()
{
    std::deque<Completion*> answered;
    bool more;
    {
        MutexLock lock(mutex_);
        for (uint64_t taken = dirty_blocks(); taken < held_from_blocks_ && !waiting_.empty();
             taken += kWriteBlocks) {
            answered.push_back(waiting_.front());
            waiting_.pop_front();
        }
        more = !waiting_.empty();
    }
    for (Completion* completion : answered)
        completion->done({});
    return more;
}

bool Ledger::wait_for_room()
{
    MutexLock lock(mutex_);
    while (dirty_full() && !stopped_)
        room_.wait(mutex_);
    return !stopped_;
}

void Ledger::answer_all()
{
    std::deque<Completion*> answered;
    {
        MutexLock lock(mutex_);
        answered.swap(waiting_);
    }
    for (Completion* completion : answered)
        completion->done({});
}

void Ledger::stop()
{
    {
        MutexLock lock(mutex_);
        stopped_ = true;
        room_.notify_all();
    }
    answer_all();
}

// --- rows for data ---

bool Ledger::reserve_data(uint64_t blocks)
{
    MutexLock lock(mutex_);
    if (reserved_data_ + blocks > data_room_)
        return false;
    reserved_data_ += blocks;
    return true;
}

void Ledger::reserve_data_anyway(uint64_t blocks)
{
    MutexLock lock(mutex_);
    reserved_data_ += blocks;
}

void Ledger::release(uint64_t data_blocks)
{
    CW_ASSERT(data_blocks <= reserved_data_);
    reserved_data_ -= data_blocks;
}

void Ledger::release_data(uint64_t blocks)
{
    MutexLock lock(mutex_);
    release(blocks);
}

void Ledger::data_taken(uint64_t blocks, uint64_t room)
{
    MutexLock lock(mutex_);
    release(blocks);
    data_room_ = room;
}

bool Ledger::try_lower_room(uint64_t room)
{
    MutexLock lock(mutex_);
    if (reserved_data_ > room)
        return false;
    data_room_ = std::min(data_room_, room);
    return true;
}

bool Ledger::try_give_up_room(uint64_t blocks)
{
    MutexLock lock(mutex_);
    const uint64_t left = data_room_ - std::min(data_room_, blocks);
    if (reserved_data_ > left)
        return false;
    data_room_ = left;
    return true;
}

uint64_t Ledger::reserved_data() const
{
    MutexLock lock(mutex_);
    return reserved_data_;
}

uint64_t Ledger::data_available() const
{
    MutexLock lock(mutex_);
    return data_room_ > reserved_data_ ? data_room_ - reserved_data_ : 0;
}

// --- nodes for changes ---

void Ledger::set_transactions(const View& view)
{
    Ref<Transaction> open = view.open;
    Ref<Transaction> committing = view.committing;
    MutexLock lock(mutex_);
    std::swap(open_, open);
    std::swap(committing_, committing);
}

void Ledger::set_metadata_room(const MetadataRoom& room)
{
    MutexLock lock(mutex_);
    metadata_room_ = room;
}

MetadataRoom Ledger::metadata_room() const
{
    MutexLock lock(mutex_);
    return metadata_room_;
}

bool Ledger::fits(const PendingChanges& own, Leave leave) const
{
    PendingChanges pending = own;
    pending += reserved_changes_;
    pending += changes_of_data(dirty_blocks(), dirty_runs_);
    for (const Ref<Transaction>* transaction : {&open_, &committing_})
        if (*transaction)
            pending += changes_in(**transaction);
    return has_room(metadata_room_, node_bound(metadata_room_, pending), 0, leave);
}

bool Ledger::try_reserve_changes(const PendingChanges& own, Leave leave)
{
    MutexLock lock(mutex_);
    if (!fits(own, leave))
        return false;
    reserved_changes_ += own;
    return true;
}

void Ledger::reserve_changes_anyway(const PendingChanges& own)
{
    MutexLock lock(mutex_);
    reserved_changes_ += own;
}

bool Ledger::fits_alone(const PendingChanges& changes, uint64_t returning) const
{
    MutexLock lock(mutex_);
    return has_room(metadata_room_, node_bound(metadata_room_, changes), returning, Leave::kReserve);
}

bool ChangeReservation::take(const PendingChanges& own, Leave leave)
{
    if (!ledger_.try_reserve_changes(own, leave))
        return false;
    own_ = own;
    return true;
}

}  // namespace cowraid
