// SPDX-License-Identifier: MIT
// What the file operations share.
#pragma once

#include <string>

#include "fs/files/files.h"
#include "fs/files/inode.h"
#include "fs/txn/operation.h"

namespace cowraid {

// Fills whole blocks of a file: memory, stored blocks, zeros for holes and behind the end. `memory` is
// 4096-aligned. No locks held. Fails whole; the log names the file. `lease`: as Array::read() takes it.
// `size_bytes`, not null, becomes no more than the size that the file had when it was so.
Status read_file_blocks(Store& store, Inode& inode, uint64_t first_block, uint64_t block_count,
                        std::byte* memory, AlignedBuffer* lease = nullptr, uint64_t* size_bytes = nullptr);

// Adds blocks to the inode's dirty data, replacing older ones. Rows for `reserved_blocks` were reserved
// before. Returns what the caller tells the ledger before it lets go of the inode: what was dirty already
// needs no rows. Requires inode.mutex and the gate.
[[nodiscard]] LedgerChange insert_dirty(Files& files, const Ref<Inode>& inode, uint64_t first_block,
                                        DirtyExtent extent, uint64_t reserved_blocks);
// Takes blocks away from a file: those stored, then those dirty. Where something cannot be read nothing has
// changed. The caller stores the inode. Requires inode.mutex, and that none of them is being flushed.
Status clear_blocks(Files& files, Operation& operation, Inode& inode, uint64_t first_block,
                    uint64_t block_count);
// Of these blocks only what is in memory and not on its way to members. Requires inode.mutex.
void drop_dirty(Files& files, Inode& inode, uint64_t first_block, uint64_t block_count);

// Waits while too much is dirty; asks for a flush early. kShutdown, kWouldWait. No locks held.
Status wait_for_dirty_room(Store& store);

// A name for log lines: the path of the inode's first link, or "inode N".
std::string path_for_message(Store& store, InodeNumber inode);

// Takes the set-id bits that the file loses when the caller changes its data. Requires inode.mutex.
void clear_set_id(InodeAttributes& attributes, const Caller& caller);

}  // namespace cowraid
