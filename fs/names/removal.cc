// SPDX-License-Identifier: MIT
#include "fs/names/removal.h"

#include "fs/files/extents.h"
#include "fs/files/file_blocks.h"
#include "fs/files/flush.h"
#include "fs/names/dirent.h"
#include "fs/txn/group_planning.h"
#include "fs/txn/operation.h"

namespace cowraid {

namespace {

// Items one operation may erase.
constexpr uint32_t kErasedItemsMax = 512;

// The first item of an inode other than the inode item.
Key first_item(InodeNumber inode)
{
    return next_key(inode_key(inode));
}

// Erases up to kErasedItemsMax items of the inode other than the inode item, from `from` on, which becomes
// where the next call goes on: behind what was erased. Done is who found nothing behind the first item.
Result<Progress> erase_items(Names& names, Operation& operation, Inode& inode, Key& from, Unmapped& removed)
{
    const View view = names.store.items.view();
    const Key first = first_item(inode.number);
    const Key last{inode.number.value, UINT8_MAX, UINT64_MAX};
    const bool from_first = from == first;
    ExtentEditor editor(names.files, operation.transaction(), view, inode);
    ItemScan scan(names.store.items, view, from, last);
    for (size_t count = 0; count < kErasedItemsMax && removed.data_blocks < kFreedBlocksMax; ++count) {
        const Status status = scan.next();
        if (status.err() == Err::kNotFound) {
            from = first;
            return from_first ? Progress::kDone : Progress::kMore;
        }
        CW_TRY(status);
        if (scan.key().type == static_cast<uint8_t>(ItemType::kExtent)) {
            CW_ASSIGN(FileExtent extent, decode_extent(scan.key().offset / kBlockBytes, scan.value()));
            CW_TRY(editor.unmap(extent.file_block, extent.block_count, removed));
            count += std::max<size_t>(1, extent.frame.size()) - 1;
        }
        names.removed_bytes += scan.value().size();
        operation.erase(scan.key());
        from = next_key(scan.key());
    }
    return Progress::kMore;
}

// A count from damaged or forged records may be too small. The root stays.
void count_removed(Names& names)
{
    uint64_t count = names.inode_count.load(std::memory_order_relaxed);
    while (count > 1 && !names.inode_count.compare_exchange_weak(count, count - 1)) { }
}

// `from`: as in erase_items().
Result<Progress> remove_piece(Names& names, Inode& inode, Key& from)
{
    CW_TRY(wait_for_flush(names.files, inode));
    Operation operation(names.store);
    CW_TRY(operation.begin(Operation::Kind::kShrink, kErasedItemsMax + kFrameBlocksMax + 4, 0,
                           kFreedBlocksMax + kMaxExtentBlocks));
    // Looked at before the inode's lock, which ranks higher: an inode without names gains no references.
    const bool remembered = names.files.inodes.mark_unlinked(inode.number);
    MutexLock lock(inode.mutex);
    if (inode.removed || inode.attributes.link_count != 0 || remembered)
        return Progress::kDone;
    if (!inode.flushing.empty())
        return Progress::kMore;
    inode.temporary = false;
    drop_dirty(names.files, inode, 0, kMaxFileBlocks);
    Unmapped removed;
    Result<Progress> progress = erase_items(names, operation, inode, from, removed);
    return_reserved(names.files, removed.reserved_blocks);
    if (!progress.ok() && !operation.transaction().dirty)
        return progress;  // asks for no commit, however often it is tried
    if (!progress.ok() || *progress == Progress::kMore) {
        inode.attributes.data_blocks -= removed.data_blocks + removed.reserved_blocks;
        store_inode(operation, inode);
        return progress;
    }
    operation.erase(inode_key(inode.number));
    operation.erase(orphan_key(inode.number));
    inode.removed = true;
    count_removed(names);
    return Progress::kDone;
}

// Whether it has names: then its mark is that of a truncation that was broken off, which ends now.
Result<bool> end_cut(Names& names, const Ref<Inode>& inode)
{
    {
        MutexLock lock(inode->mutex);
        if (inode->removed || inode->attributes.link_count == 0)
            return false;
    }
    const std::unique_ptr<LongChange> cut = names.files.begin_end_of_cut(inode);
    Progress progress = Progress::kMore;
    while (progress == Progress::kMore && !names.removals.stopped()) {
        CW_ASSIGN(progress, cut->step());
    }
    return true;
}

Status remove_pieces(Names& names, InodeNumber number)
{
    {
        const Result<Ref<Inode>> found = names.files.inodes.get(number);
        // One that was made without a name may be asked for twice: as it is forgotten, and as its name goes.
        if (found.err() == Err::kNotFound)
            return {};
        CW_TRY(found.status());
        const Ref<Inode>& inode = *found;
        CW_ASSIGN(const bool has_names, end_cut(names, inode));
        Key from = first_item(number);
        Progress progress = has_names ? Progress::kDone : Progress::kMore;
        while (progress == Progress::kMore && !names.removals.stopped()) {
            CW_ASSIGN(progress, remove_piece(names, *inode, from));
        }
    }
    names.files.inodes.prune(number);
    return {};
}

// Not what was read and is wrong, nor the end of writing: the next mount tries again.
bool may_go_away(Err err)
{
    return err != Err::kCorrupt && err != Err::kNotFound && err != Err::kShutdown && err != Err::kReadOnly;
}

}  // namespace

void queue_removal(Names& names, InodeNumber inode)
{
    if (names.store.service.writing())
        names.removals.push(inode);
}

void queue_end_of_cut(Names& names, Inode& inode)
{
    {
        MutexLock lock(inode.mutex);
        if ((inode.attributes.flags & kInodeCut) == 0 || inode.attributes.link_count == 0)
            return;
    }
    queue_removal(names, inode.number);
}

Status remove_inode(Names& names, InodeNumber number)
{
    const Status status = remove_pieces(names, number);
    if (!status.ok() && may_go_away(status.err()))
        names.removals.set_aside(number);
    return status;
}

Status finish_removals(Names& names)
{
    if (!names.store.options.manual_commit) {
        names.removals.wait_done();
        return {};
    }
    names.removals.retry().ignore();  // nobody else does; mostly there is nothing
    Status first;
    InodeNumber inode;
    while (names.removals.try_pop(inode)) {
        const Status status = remove_inode(names, inode);
        if (first.ok())
            first = status;
    }
    return first;
}

Status queue_orphans(Names& names)
{
    const auto type = static_cast<uint8_t>(ItemType::kOrphan);
    ItemScan scan(names.store.items, names.store.items.view(), {0, type, 0}, {0, type, UINT64_MAX});
    Status status = scan.next();
    for (; status.ok(); status = scan.next())
        names.removals.push({scan.key().offset});
    return status.err() == Err::kNotFound ? Status() : status;
}

}  // namespace cowraid
