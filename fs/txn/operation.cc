// SPDX-License-Identifier: MIT
#include "fs/txn/operation.h"

#include <algorithm>
#include <ctime>

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

// Takes room beside others, then, when what was unlinked is deleted, alone. kNoSpace: it is not there.
// `wanted` compares this with what others want. kWouldWait: as commit_until().
template <typename Take, typename Wanted>
Status take_room(Store& store, RoomGate& gate, Take take, Wanted wanted)
{
    if (NoWait::active() && gate.closed())
        return Err::kWouldWait;
    const uint64_t mark = gate.closings();
    const auto hopeless = [&] {
        return gate.refused_since(mark, wanted());
    };
    const auto take_beside = [&] {
        gate.wait_open();
        return take();
    };
    const Status beside = commit_until(store, take_beside, hopeless);
    if (beside.err() != Err::kNoSpace)
        return beside;
    // Files that cannot be deleted bring no room. Most of it beside others, what is left while they wait.
    store.driver->finish_removals().ignore();
    if (!gate.close(mark, wanted()))
        return beside;
    store.driver->finish_removals().ignore();
    const Status alone = commit_until(store, take, never);
    if (alone.err() == Err::kNoSpace)
        gate.open_refused(wanted());
    else
        gate.open();
    return alone;
}

}  // namespace

bool promise_at_once(Store& store, uint64_t blocks)
{
    return !store.data_gate.closed() && store.space.promise_data(blocks);
}

Status promise_data(Store& store, uint64_t blocks)
{
    const auto take = [&] {
        return store.space.promise_data(blocks);
    };
    return take_room(store, store.data_gate, take, [&] { return blocks; });
}

Status DataPromise::get(uint64_t blocks)
{
    CW_TRY(promise_data(store_, blocks));
    blocks_ += blocks;
    return {};
}

Status DataPromise::get_by_force(uint64_t blocks)
{
    const Status status = get(blocks);
    if (status.err() != Err::kNoSpace)
        return status;
    store_.space.force_data(blocks);
    blocks_ += blocks;
    return {};
}

void DataPromise::take_over(uint64_t blocks)
{
    CW_ASSERT(blocks <= blocks_);
    blocks_ -= blocks;
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

PendingChanges changes_in(const Transaction& transaction)
{
    const uint64_t remapped = transaction.moved_to.window_count() + transaction.moved_from.window_count();
    constexpr uint64_t kWindowBytes = 64 * 9;
    PendingChanges changes = {
        .entries = transaction.items.entry_count(),
        .bytes = transaction.items.byte_count(),
        .freed_runs = transaction.items.entry_count(),
        .checksum_windows = transaction.checksums.window_count(),
        .remap_windows = remapped,
        .remap_bytes = remapped * kWindowBytes,
        .moved_nodes = transaction.moved_nodes,
    };
    changes += changes_of_left(transaction.left_count);
    return changes;
}

PendingChanges pending_changes(Store& store)
{
    // In this order: a flush turns dirty data into items.
    const DirtyAccount::Amount dirty = store.dirty.amount();
    const View view = store.timeline.view();
    PendingChanges pending = changes_in(*view.open);
    if (view.committing)
        pending += changes_in(*view.committing);
    pending.data_blocks = dirty.blocks;
    pending.data_runs = dirty.runs;
    return pending;
}

bool Operation::try_claim(Kind kind)
{
    const SpaceBudget::ClaimMark mark = store_.space.claim_mark();
    const Leave leave = kind == Kind::kShrink ? Leave::kMoves : Leave::kReserve;
    return store_.space.try_claim(claimed_, pending_changes(store_), mark, leave);
}

// Claims, when a commit will have room for what is pending and claimed. kMinor: at once or not. kShrink: at
// the latest after some commits; but under parity what a commit takes comes back only as whole rows do, so
// that it goes on for as long as the nodes that commits move bring some.
Status Operation::admit(Kind kind)
{
    const auto take = [&] {
        return try_claim(kind);
    };
    if (kind == Kind::kMinor) {
        CW_TRY(store_.service.check_writable());
        return !store_.node_gate.closed() && take() ? Status() : Err::kNoSpace;
    }
    const auto wanted = [&] {
        return node_blocks_bound(store_.space.metadata_room(), claimed_);
    };
    if (kind == Kind::kGrow)
        return take_room(store_, store_.node_gate, take, wanted);
    while (true) {
        const MetadataRoom before = store_.space.metadata_room();
        const Status status = commit_until(store_, take, never);
        if (status.err() != Err::kNoSpace)
            return status;
        if (!before.nodes_have_parity)
            break;
        if (store_.space.metadata_room().free_blocks <= before.free_blocks)
            return Err::kNoSpace;
    }
    store_.space.claim(claimed_);
    return {};
}

Status Operation::begin(Kind kind, uint32_t item_count, uint64_t data_blocks,
                        uint64_t freed_blocks) CW_NO_THREAD_SAFETY_ANALYSIS
{
    claimed_ = changes_of_items(item_count);
    claimed_.data_blocks = data_blocks;
    claimed_.data_runs = data_blocks > 0 ? 1 : 0;
    if (store_.volume.may_have_moved_blocks())
        claimed_.freed_runs += divide_up(freed_blocks, kChecksumWindowBlocks);
    CW_TRY(admit(kind));
    store_.gate.lock_shared();
    const Status status = store_.service.check_writable();
    if (!status.ok()) {
        store_.gate.unlock_shared();
        store_.space.give_up(claimed_);
        return status;
    }
    transaction_ = store_.timeline.open();
    return {};
}

void Operation::end() CW_NO_THREAD_SAFETY_ANALYSIS
{
    if (!transaction_)
        return;
    transaction_.reset();
    store_.space.give_up(claimed_);
    store_.gate.unlock_shared();
}

Operation::~Operation()
{
    end();
}

void Operation::note_change()
{
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
