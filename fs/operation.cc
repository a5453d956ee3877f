// SPDX-License-Identifier: MIT
#include "fs/operation.h"

#include <ctime>

#include "fs/commit.h"

namespace cowraid {

SpaceBudget::Pending pending_changes(FilesystemCore& core, uint32_t item_count)
{
    const View view = core.timeline.view();
    SpaceBudget::Pending pending;
    pending.entries = item_count;
    pending.bytes = uint64_t{item_count} * 256;
    for (const Transaction* layer : {view.open.get(), view.committing.get()}) {
        if (layer == nullptr)
            continue;
        pending.entries += layer->items.entry_count() + layer->remap_entry_count();
        pending.bytes += layer->items.byte_count();
    }
    pending.data_blocks = core.dirty.blocks();
    return pending;
}

Status Operation::begin(Kind kind, uint32_t item_count) CW_NO_THREAD_SAFETY_ANALYSIS
{
    // Two commits: the first may only make the second able to release what it freed.
    for (int attempt = 0;; ++attempt) {
        if (core_.stopped)
            return Err::kShutdown;
        if (core_.read_only)
            return Err::kReadOnly;
        if (core_.space.metadata_fits(pending_changes(core_, item_count), kind == Kind::kShrink))
            break;
        if (attempt == 2) {
            if (kind == Kind::kShrink)
                break;
            return Err::kNoSpace;
        }
        CW_TRY(force_commit(core_));
    }
    core_.gate.lock_shared();
    if (core_.stopped || core_.read_only) {
        core_.gate.unlock_shared();
        return core_.stopped ? Err::kShutdown : Err::kReadOnly;
    }
    transaction_ = core_.timeline.open();
    return {};
}

void Operation::end() CW_NO_THREAD_SAFETY_ANALYSIS
{
    if (!transaction_)
        return;
    transaction_.reset();
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
