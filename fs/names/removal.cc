// SPDX-License-Identifier: MIT
#include "fs/names/removal.h"

#include "fs/commit/commit.h"
#include "fs/files/extents.h"
#include "fs/files/flush.h"
#include "fs/names/dirent.h"
#include "fs/txn/operation.h"

namespace cowraid {

namespace {

// Items one operation may erase.
constexpr uint32_t kErasedItemsMax = 512;

void drop_dirty(FilesystemCore& core, Inode& inode) CW_NO_THREAD_SAFETY_ANALYSIS
{
    const uint64_t blocks = inode.dirty.block_count();
    const int64_t runs = inode.dirty.run_count();
    if (blocks == 0)
        return;
    inode.dirty.clear();
    core.changes.note_blocks(inode, 0, kMaxFileBlocks);
    core.dirty.remove_blocks(blocks, -runs);
    core.space.return_data(blocks);
}

// Erases up to kErasedItemsMax items of the inode other than the inode item.
Result<Progress> erase_items(FilesystemCore& core, Operation& operation, Inode& inode, Unmapped& removed)
{
    const View view = core.store.view();
    const Key first = next_key(inode_key(inode.number));
    const Key last{inode.number.value, UINT8_MAX, UINT64_MAX};
    ExtentEditor editor(core, operation.transaction(), view, inode);
    ItemScan scan(core.store, view, first, last);
    for (uint32_t count = 0; count < kErasedItemsMax && removed.data_blocks < kFreedBlocksMax; ++count) {
        const Status status = scan.next();
        if (status.err() == Err::kNotFound)
            return Progress::kDone;
        CW_TRY(status);
        if (scan.key().type == static_cast<uint8_t>(ItemType::kExtent)) {
            CW_ASSIGN(FileExtent extent, decode_extent(scan.key().offset / kBlockBytes, scan.value()));
            CW_TRY(editor.unmap(extent.file_block, extent.block_count, removed));
        }
        core.removed_bytes += scan.value().size();
        operation.erase(scan.key());
    }
    return Progress::kMore;
}

// A count from damaged or forged records may be too small. The root stays.
void count_removed(FilesystemCore& core)
{
    uint64_t count = core.inode_count.load(std::memory_order_relaxed);
    while (count > 1 && !core.inode_count.compare_exchange_weak(count, count - 1)) { }
}

Result<Progress> remove_piece(FilesystemCore& core, Inode& inode)
{
    wait_for_flush(core, inode);
    Operation operation(core);
    CW_TRY(operation.begin(Operation::Kind::kShrink, kErasedItemsMax + 4, 0,
                           kFreedBlocksMax + kMaxExtentBlocks));
    // Looked at before the inode's lock, which ranks higher: an inode without names gains no references.
    const bool remembered = core.inodes.remembered(inode.number);
    MutexLock lock(inode.mutex);
    if (inode.removed || inode.attributes.link_count != 0 || remembered)
        return Progress::kDone;
    if (!inode.flushing.empty())
        return Progress::kMore;
    drop_dirty(core, inode);
    Unmapped removed;
    Result<Progress> progress = erase_items(core, operation, inode, removed);
    return_reserved(core, removed.reserved_blocks);
    if (!progress.ok() || *progress == Progress::kMore) {
        inode.attributes.data_blocks -= removed.data_blocks + removed.reserved_blocks;
        operation.store(inode);
        return progress;
    }
    operation.erase(inode_key(inode.number));
    operation.erase(orphan_key(inode.number));
    inode.removed = true;
    count_removed(core);
    return Progress::kDone;
}

}  // namespace

void queue_removal(FilesystemCore& core, InodeNumber inode)
{
    if (!core.read_only && !core.stopped)
        core.removals.push(inode);
}

Status remove_inode(FilesystemCore& core, InodeNumber number)
{
    {
        CW_ASSIGN(const Ref<Inode> inode, core.inodes.get(number));
        while (true) {
            CW_ASSIGN(const Progress progress, remove_piece(core, *inode));
            if (progress == Progress::kDone)
                break;
        }
    }
    core.inodes.prune(number);
    return {};
}

Status finish_removals(FilesystemCore& core)
{
    if (!core.options.manual_commit)
        core.removals.wait_done();
    InodeNumber inode;
    while (core.options.manual_commit && core.removals.try_pop(inode))
        CW_TRY(remove_inode(core, inode));
    return {};
}

Status queue_orphans(FilesystemCore& core)
{
    const auto type = static_cast<uint8_t>(ItemType::kOrphan);
    ItemScan scan(core.store, core.store.view(), {0, type, 0}, {0, type, UINT64_MAX});
    Status status = scan.next();
    for (; status.ok(); status = scan.next())
        core.removals.push({scan.key().offset});
    return status.err() == Err::kNotFound ? Status() : status;
}

}  // namespace cowraid
