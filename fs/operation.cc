// SPDX-License-Identifier: MIT
#include "fs/operation.h"

#include <ctime>

#include "fs/commit.h"

namespace cowraid {

namespace {

// The first may only make the second able to release what it freed.
constexpr int kCommits = 2;

Status check_writable(const FilesystemCore& core)
{
    if (core.stopped)
        return Err::kShutdown;
    return core.read_only ? Err::kReadOnly : Err::kOk;
}

}  // namespace

Status promise_data(FilesystemCore& core, uint64_t blocks)
{
    for (int attempt = 0;; ++attempt) {
        CW_TRY(check_writable(core));
        if (core.space.promise_data(blocks))
            return {};
        // Others may have taken what the commits made free.
        const uint64_t returning = core.dirty.blocks() + core.allocator.numbers(kGroupData).pinned_blocks;
        if (attempt >= kCommits && !core.space.may_fit_data(blocks, returning))
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
    return {
        .entries = transaction.items.entry_count(),
        .bytes = transaction.items.byte_count(),
        .checksum_windows = transaction.checksums.window_count(),
        .remap_windows = transaction.moved_to.window_count() + transaction.moved_from.window_count(),
    };
}

PendingChanges pending_changes(FilesystemCore& core)
{
    const View view = core.timeline.view();
    PendingChanges pending = changes_in(*view.open);
    if (view.committing)
        pending += changes_in(*view.committing);
    const DirtyAccount::Amount dirty = core.dirty.amount();
    pending.data_blocks = dirty.blocks;
    pending.data_runs = dirty.runs;
    return pending;
}

// Makes sure that a commit will have room for what is pending and claimed.
Status Operation::admit(Kind kind)
{
    const bool shrink = kind == Kind::kShrink;
    for (int attempt = 0;; ++attempt) {
        CW_TRY(check_writable(core_));
        if (core_.space.metadata_fits(pending_changes(core_), shrink))
            return {};
        if (attempt >= kCommits && shrink)
            return {};
        const uint64_t returning = core_.allocator.numbers(kGroupMetadata).pinned_blocks;
        if (attempt >= kCommits && !core_.space.may_fit_metadata(claimed_, returning))
            return Err::kNoSpace;
        CW_TRY(force_commit(core_));
    }
}

Status Operation::begin(Kind kind, uint32_t item_count, uint64_t data_blocks) CW_NO_THREAD_SAFETY_ANALYSIS
{
    claimed_ = changes_of_items(item_count);
    claimed_.data_blocks = data_blocks;
    claimed_.data_runs = data_blocks > 0 ? 1 : 0;
    core_.space.claim(claimed_);
    Status status = admit(kind);
    if (status.ok()) {
        core_.gate.lock_shared();
        status = check_writable(core_);
        if (!status.ok())
            core_.gate.unlock_shared();
    }
    if (!status.ok()) {
        core_.space.unclaim(claimed_);
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
    core_.space.unclaim(claimed_);
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
