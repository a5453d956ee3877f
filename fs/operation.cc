// SPDX-License-Identifier: MIT
#include "fs/operation.h"

#include <ctime>
#include <optional>

#include "fs/commit.h"

namespace cowraid {

namespace {

// Commits of everything that others have under way: what the first ones free the next may use.
constexpr int kCommits = 3;

class Turn {
public:
    explicit Turn(RoomQueue& queue) : queue_(queue) { queue_.enter(); }
    ~Turn() { queue_.leave(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

private:
    RoomQueue& queue_;
};

Status check_writable(const FilesystemCore& core)
{
    if (core.stopped)
        return Err::kShutdown;
    return core.read_only ? Err::kReadOnly : Err::kOk;
}

}  // namespace

bool promise_at_once(FilesystemCore& core, uint64_t blocks)
{
    return core.data_queue.empty() && core.space.promise_data(blocks);
}

Status promise_data(FilesystemCore& core, uint64_t blocks)
{
    if (promise_at_once(core, blocks))
        return {};
    const Turn turn(core.data_queue);
    for (int commits = 0;; ++commits) {
        CW_TRY(check_writable(core));
        if (core.space.promise_data(blocks))
            return {};
        if (commits == kCommits)
            return Err::kNoSpace;
        CW_TRY(force_commit(core));
    }
}

PendingChanges changes_of_items(uint32_t item_count)
{
    return {.entries = item_count, .bytes = uint64_t{item_count} * 256};
}

PendingChanges changes_in(const Transaction& transaction)
{
    const uint64_t remapped = transaction.moved_to.window_count() + transaction.moved_from.window_count();
    constexpr uint64_t kWindowBytes = 64 * 9;
    return {
        .entries = transaction.items.entry_count(),
        .bytes = transaction.items.byte_count(),
        .checksum_windows = transaction.checksums.window_count(),
        .remap_windows = remapped,
        .remap_bytes = remapped * kWindowBytes,
    };
}

PendingChanges pending_changes(FilesystemCore& core)
{
    // In this order: a flush turns dirty data into items.
    const DirtyAccount::Amount dirty = core.dirty.amount();
    const View view = core.timeline.view();
    PendingChanges pending = changes_in(*view.open);
    if (view.committing)
        pending += changes_in(*view.committing);
    pending.data_blocks = dirty.blocks;
    pending.data_runs = dirty.runs;
    return pending;
}

bool Operation::try_claim(Kind kind)
{
    const SpaceBudget::ClaimMark mark = core_.space.claim_mark();
    return core_.space.try_claim(claimed_, pending_changes(core_), mark, kind == Kind::kShrink);
}

// Claims, when a commit will have room for what is pending and claimed. kShrink: at the latest after some
// commits.
Status Operation::admit(Kind kind)
{
    const bool shrink = kind == Kind::kShrink;
    CW_TRY(check_writable(core_));
    if ((shrink || core_.node_queue.empty()) && try_claim(kind))
        return {};
    std::optional<Turn> turn;
    if (!shrink)
        turn.emplace(core_.node_queue);
    for (int commits = 0;; ++commits) {
        CW_TRY(check_writable(core_));
        if (try_claim(kind))
            return {};
        if (commits == kCommits)
            break;
        CW_TRY(force_commit(core_));
    }
    if (!shrink)
        return Err::kNoSpace;
    core_.space.claim(claimed_);
    return {};
}

Status Operation::begin(Kind kind, uint32_t item_count, uint64_t data_blocks) CW_NO_THREAD_SAFETY_ANALYSIS
{
    claimed_ = changes_of_items(item_count);
    claimed_.data_blocks = data_blocks;
    claimed_.data_runs = data_blocks > 0 ? 1 : 0;
    CW_TRY(admit(kind));
    core_.gate.lock_shared();
    const Status status = check_writable(core_);
    if (!status.ok()) {
        core_.gate.unlock_shared();
        core_.space.give_up(claimed_);
        return status;
    }
    transaction_ = core_.timeline.open();
    return {};
}

void Operation::end() CW_NO_THREAD_SAFETY_ANALYSIS
{
    if (!transaction_)
        return;
    transaction_.reset();
    core_.space.give_up(claimed_);
    core_.gate.unlock_shared();
}

Operation::~Operation()
{
    end();
}

void Operation::note_change()
{
    transaction_->dirty = true;
    if (change_ == 0)
        change_ = core_.changes.next();
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

void Operation::store(Inode& inode, Changed changed) CW_NO_THREAD_SAFETY_ANALYSIS
{
    put(inode_key(inode.number), encode_inode(inode.attributes));
    if (changed == Changed::kContent)
        inode.data_change = change_;
}

timespec current_time()
{
    timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return now;
}

}  // namespace cowraid
