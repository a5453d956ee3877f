// SPDX-License-Identifier: MIT
#include "fs/txn/operation.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "fs/txn/group_planning.h"
#include "fs/txn/no_wait.h"

namespace cowraid {

namespace {

// Commits of everything that others have under way: what the first ones free the next may use.
constexpr int kCommits = 3;

// Commits until `take` says that it got what it wants, or `hopeless` that it never will (kNoSpace), or an
// error. kWouldWait instead of the first commit in a thread that may not wait.
template <typename Take, typename Hopeless> Status commit_until(Store& store, Take take, Hopeless hopeless)
{
    for (int commits = 0;; ++commits) {
        CW_TRY(store.service.check_writable());
        if (take())
            return {};
        if (NoWait::active())
            return Err::kWouldWait;
        if (commits == kCommits || hopeless())
            return Err::kNoSpace;
        CW_TRY(force_commit(store));
    }
}

bool never()
{
    return false;
}

// Takes room beside others, then, when what was unlinked is deleted, in a turn alone. kNoSpace: it is not
// there. `wanted` compares this with what others want. kWouldWait: as commit_until().
template <typename Take, typename Wanted>
Status take_room(Store& store, RoomTurns& turns, Take take, Wanted wanted)
{
    const uint64_t mark = turns.count();
    const auto hopeless = [&] {
        return turns.refused_since(mark, wanted());
    };
    const auto take_beside = [&] {
        if (NoWait::active())
            return !turns.exclusive() && take();
        turns.wait_shared();
        return take();
    };
    const Status beside = commit_until(store, take_beside, hopeless);
    if (beside.err() != Err::kNoSpace)
        return beside;
    // Files that cannot be deleted bring no room. Most of it beside others, what is left while they wait.
    store.driver->finish_removals().ignore();
    if (!turns.begin(mark, wanted()))
        return beside;
    store.driver->finish_removals().ignore();
    const Status alone = commit_until(store, take, never);
    if (alone.err() == Err::kNoSpace)
        turns.end_refused(wanted());
    else
        turns.end();
    return alone;
}

}  // namespace

Status reserve_data(Store& store, uint64_t blocks)
{
    const auto take = [&] {
        return store.ledger.reserve_data(blocks);
    };
    return take_room(store, store.data_turns, take, [&] { return blocks; });
}

Status DataReservation::get(uint64_t blocks)
{
    CW_TRY(reserve_data(store_, blocks));
    blocks_ += blocks;
    return {};
}

Status DataReservation::get_anyway(uint64_t blocks)
{
    const Status status = get(blocks);
    if (status.err() != Err::kNoSpace)
        return status;
    store_.ledger.reserve_data_anyway(blocks);
    blocks_ += blocks;
    return {};
}

void DataReservation::take_over(uint64_t blocks)
{
    CW_ASSERT(blocks <= blocks_);
    blocks_ -= blocks;
}

// Reserves nodes, when a commit will have room for what is pending and reserved. kMinor: at once or not.
// kShrink: at the latest after some commits; but under parity what a commit takes comes back only as whole
// rows do, so that it goes on for as long as the nodes that commits move bring some.
Status Operation::admit(Kind kind)
{
    const auto take = [&] {
        return store_.ledger.try_reserve_changes(reserved_,
                                                 kind == Kind::kShrink ? Leave::kMoves : Leave::kReserve);
    };
    if (kind == Kind::kMinor) {
        CW_TRY(store_.service.check_writable());
        return !store_.node_turns.exclusive() && take() ? Status() : Err::kNoSpace;
    }
    const auto wanted = [&] {
        return node_blocks_bound(store_.ledger.metadata_room(), reserved_);
    };
    if (kind == Kind::kGrow)
        return take_room(store_, store_.node_turns, take, wanted);
    while (true) {
        const MetadataRoom before = store_.ledger.metadata_room();
        const Status status = commit_until(store_, take, never);
        if (status.err() != Err::kNoSpace)
            return status;
        if (!before.nodes_have_parity)
            break;
        if (store_.ledger.metadata_room().free_blocks <= before.free_blocks)
            return Err::kNoSpace;
    }
    store_.ledger.reserve_changes_anyway(reserved_);
    return {};
}

namespace {

// As commit_until(), for room in memory, which every commit brings.
Status wait_for_memory(Store& store)
{
    while (store.timeline.memory() == Timeline::Memory::kTooMuch) {
        CW_TRY(store.service.check_writable());
        if (NoWait::active())
            return Err::kWouldWait;
        CW_TRY(force_commit(store));
    }
    return {};
}

// Items are in memory until their commit, which takes some times as much again: as shares of what may be
// dirty. Inside the gate.
Timeline::Memory memory_of(const Store& store, const Transaction& transaction)
{
    constexpr uint64_t kMuchShare = 16;
    constexpr uint64_t kTooMuchShare = 8;
    const uint64_t bytes = transaction.items.memory_bytes();
    if (bytes < store.options.dirty_bytes_max / kMuchShare)
        return Timeline::Memory::kLittle;
    return bytes < store.options.dirty_bytes_max / kTooMuchShare ? Timeline::Memory::kMuch
                                                                 : Timeline::Memory::kTooMuch;
}

}  // namespace

void Operation::reserve_for(uint32_t item_count, uint64_t data_blocks, uint64_t freed_blocks)
{
    reserved_ = changes_of_items(item_count);
    reserved_.data_blocks = data_blocks;
    reserved_.data_runs = reserved_.front_runs = data_blocks > 0 ? 1 : 0;
    if (store_.volume.may_have_moved_blocks())
        reserved_.freed_runs += divide_up(freed_blocks, kChecksumWindowBlocks);
}

// Its changes are reserved. Not analysed: the gate is taken here and let go in end(), and whether it is held
// in between depends on the status.
Status Operation::enter() CW_NO_THREAD_SAFETY_ANALYSIS
{
    store_.gate.lock_shared();
    const Status status = store_.service.check_writable();
    if (status.ok()) {
        transaction_ = &store_.timeline.open_in_gate();
        return {};
    }
    store_.gate.unlock_shared();
    settle({});
    return status;
}

Status Operation::begin(Kind kind, uint32_t item_count, uint64_t data_blocks, uint64_t freed_blocks)
{
    if (kind != Kind::kMinor)
        CW_TRY(wait_for_memory(store_));
    reserve_for(item_count, data_blocks, freed_blocks);
    CW_TRY(admit(kind));
    return enter();
}

Status Operation::begin_write(uint64_t data_blocks)
{
    reserve_for(1, data_blocks, 0);
    CW_TRY(store_.service.check_writable());
    if (store_.data_turns.exclusive() || store_.node_turns.exclusive() ||
        !store_.ledger.reserve_write(reserved_, data_blocks))
        return Err::kBusy;
    const Status status = enter();
    if (!status.ok())
        store_.ledger.release_data(data_blocks);
    return status;
}

void Operation::settle(LedgerChange change)
{
    change.released_changes = std::exchange(reserved_, {});
    store_.ledger.apply(change);
    settled_ = true;
}

// Not analysed: transaction_ says whether enter() has taken the gate.
void Operation::end() CW_NO_THREAD_SAFETY_ANALYSIS
{
    if (transaction_ == nullptr)
        return;
    if (!settled_)
        settle({});
    const Timeline::Memory memory = memory_of(store_, *transaction_);
    const bool asks = memory != store_.timeline.memory() && store_.timeline.set_memory(memory) < memory;
    transaction_ = nullptr;
    store_.gate.unlock_shared();
    if (asks)
        store_.commits.request_commit();
}

Operation::~Operation()
{
    end();
}

void Operation::note_change()
{
    CW_DEBUG_ASSERT(!settled_);
    transaction_->dirty = true;
    if (change_ == 0)
        change_ = store_.changes.next();
}

void Operation::put(const Key& key, std::span<const std::byte> value)
{
    note_change();
    transaction_->items.put(key, value);
}

void Operation::erase(const Key& key)
{
    note_change();
    transaction_->items.erase(key);
}

timespec current_time()
{
    timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return now;
}

}  // namespace cowraid
