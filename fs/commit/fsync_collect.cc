// SPDX-License-Identifier: MIT
#include "fs/commit/fsync_collect.h"

#include <algorithm>

#include "format/fsync_record.h"
#include "fs/volume/commit_mutant.h"

namespace cowraid {

namespace {

// The part [first, end) of a file as its dirty data is now. Content is copied: a later write may change a
// dirty block in place.
bool add_range(const DirtyMap& dirty, InodeNumber inode, uint64_t first, uint64_t end,
               FsyncRecordEncoder& encoder)
{
    for (auto at = dirty.first_ending_after(first); first < end; ++at) {
        const uint64_t next = at == dirty.extents().end() ? end : std::min(end, at->first);
        if (first < next && !encoder.add_blocks({inode, first, next - first, nullptr}))
            return false;
        first = std::max(first, next);
        if (first == end)
            return true;
        const DirtyExtent& extent = at->second;
        const uint64_t skip = first - at->first;
        const uint64_t count = std::min(end - first, extent.block_count - skip);
        if (!encoder.add_blocks({inode, first, count, extent.block(static_cast<uint32_t>(skip))}))
            return false;
        first += count;
    }
    return true;
}

bool add_inode(Inode& inode, FsyncRecordEncoder& encoder)
{
    MutexLock lock(inode.mutex);
    for (const auto& [first, end] : inode.unlogged.ranges())
        if (!add_range(inode.dirty, inode.number, first, end, encoder))
            return false;
    return true;
}

// Lets go of an inode that may have been kept in memory for its list.
void clear_unlogged(Committer& committer, Ref<Inode> inode)
{
    {
        MutexLock lock(inode->mutex);
        inode->unlogged.clear();
    }
    const InodeNumber number = inode->number;
    inode.reset();
    committer.files.inodes.prune(number);
}

bool add_data(Committer& committer, FsyncRecordEncoder& encoder)
{
    bool fits = true;
    const bool mutant = is_mutant(CommitMutant::kRecordWithoutData);
    for (Ref<Inode>& inode : committer.files.tracker.take_inodes()) {
        fits = fits && (mutant || add_inode(*inode, encoder));
        clear_unlogged(committer, std::move(inode));
    }
    return fits;
}

bool encode_changes(Committer& committer, Transaction& transaction, std::vector<std::byte>& record)
{
    if (!committer.files.tracker.tracking())
        return false;
    FsyncRecordEncoder encoder;
    std::vector<ItemTable::Change> items;
    bool fits = transaction.items.take_unlogged(encoder.room(), items);
    for (const ItemTable::Change& item : items)
        fits = fits && encoder.add_item(item);
    if (!fits || !add_data(committer, encoder))
        return false;
    const int64_t reserved = committer.files.reserved_blocks;
    record = encoder.finish({.next_inode = committer.names.next_inode,
                             .inode_count = committer.names.inode_count,
                             .reserved_blocks = static_cast<uint64_t>(reserved)});
    return true;
}

}  // namespace

CollectedChanges collect_changes(Committer& committer)
{
    using Kind = CollectedChanges::Kind;
    CollectedChanges collected;
    WriteLock gate(committer.store.gate);
    const View view = committer.store.timeline.view();
    collected.change = committer.store.changes.newest();
    // Asked after the view was taken: a commit that it does not show under way has been counted.
    if (collected.change <= committer.syncs.durable())
        return collected;
    // Its changes are not all in the log, so nothing newer may come there before they are durable.
    collected.transaction = view.committing ? view.committing : view.open;
    collected.kind = view.committing ? Kind::kWait : Kind::kCommit;
    if (view.committing || !view.open->loggable)
        return collected;
    if (encode_changes(committer, *view.open, collected.record))
        collected.kind = Kind::kRecord;
    else
        view.open->loggable = false;
    return collected;
}

void restart_tracking(Committer& committer, bool track)
{
    for (Ref<Inode>& inode : committer.files.tracker.take_inodes())
        clear_unlogged(committer, std::move(inode));
    committer.files.tracker.set_tracking(track);
    const Ref<Transaction> open = committer.store.timeline.open();
    if (track)
        open->items.start_tracking();
    open->loggable = track;
}

}  // namespace cowraid
