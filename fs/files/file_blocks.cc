// SPDX-License-Identifier: MIT
#include "fs/files/file_blocks.h"

#include <sys/stat.h>

#include <utility>

#include "format/name_codec.h"
#include "fs/files/extents.h"
#include "fs/txn/group_planning.h"
#include "fs/txn/no_wait.h"

namespace cowraid {

LedgerChange insert_dirty(Files& files, const Ref<Inode>& inode, uint64_t first_block, DirtyExtent extent,
                          uint64_t reserved_blocks)
{
    inode->mutex.assert_held();
    const uint64_t block_count = extent.block_count;
    if (inode->dirty.empty())
        inode->dirty.set_over_stored(inode->attributes.data_blocks > 0 || !inode->flushing.empty());
    const DirtyRuns runs = inode->dirty.runs();
    const uint64_t news = inode->dirty.insert(first_block, std::move(extent));
    files.tracker.note_blocks(*inode, first_block, block_count);
    if (!inode->on_dirty_list) {
        inode->on_dirty_list = true;
        inode->compresses = is_to_compress(files.store.live.compression, inode->attributes.flags);
        files.dirty_inodes.add(inode);
    }
    return {.dirty_blocks = news,
            .dirty_runs = inode->dirty.runs() - runs,
            .released_data = reserved_blocks - news,
            .released_changes = {}};
}

Status clear_blocks(Files& files, Operation& operation, Inode& inode, uint64_t first_block,
                    uint64_t block_count)
{
    inode.mutex.assert_held();
    Unmapped removed;
    Status status;
    {
        ExtentEditor editor(files, operation.transaction(), files.store.items.view(), inode);
        status = editor.unmap(first_block, block_count, removed);
    }
    return_reserved(files, removed.reserved_blocks);
    const uint64_t blocks = removed.data_blocks + removed.reserved_blocks;
    inode.attributes.data_blocks -= blocks;
    if (!status.ok()) {
        if (blocks > 0)
            store_inode(operation, inode);
        return status;
    }
    drop_dirty(files, inode, first_block, block_count);
    return {};
}

void drop_dirty(Files& files, Inode& inode, uint64_t first_block, uint64_t block_count)
{
    inode.mutex.assert_held();
    const DirtyRuns runs = inode.dirty.runs();
    const uint64_t erased = inode.dirty.erase(first_block, block_count);
    if (erased == 0)
        return;
    files.tracker.note_blocks(inode, first_block, block_count);
    files.store.ledger.remove_dirty(erased, inode.dirty.runs() - runs, erased);
}

Status wait_for_dirty_room(Store& store)
{
    if (store.wants_flush())
        ask_for_flush(store);
    if (!store.ledger.dirty_full())
        return {};
    if (NoWait::active())
        return Err::kWouldWait;
    return store.ledger.wait_for_room() ? Status() : Err::kShutdown;
}

namespace {

// The first name of the inode and its parent; false when it has none that can be read.
bool first_name(Store& store, InodeNumber inode, std::string& name, InodeNumber& parent)
{
    const auto type = static_cast<uint8_t>(ItemType::kLink);
    ItemScan scan(store.items, store.items.view(), {inode.value, type, 0}, {inode.value, type, UINT64_MAX});
    if (!scan.next().ok())
        return false;
    Result<InodeLink> link = decode_link(scan.value());
    if (!link.ok())
        return false;
    name = std::move(link->name);
    parent = link->parent;
    return true;
}

}  // namespace

std::string path_for_message(Store& store, InodeNumber inode)
{
    constexpr int kMaxDepth = 64;  // a message needs no more, and a damaged tree may have a cycle
    std::string path;
    InodeNumber at = inode;
    for (int depth = 0; depth < kMaxDepth && at.value != kRootInode; ++depth) {
        std::string name;
        if (!first_name(store, at, name, at))
            return "inode " + std::to_string(inode.value);
        path.insert(0, "/" + name);
    }
    return path.empty() ? "/" : path;
}

void clear_set_id(InodeAttributes& attributes, const Caller& caller)
{
    if (attributes.is_regular())
        attributes.mode &= ~(caller.cleared_mode_bits & uint32_t{S_ISUID | S_ISGID});
}

}  // namespace cowraid
