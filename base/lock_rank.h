// SPDX-License-Identifier: MIT
// Every lock of the program, lowest first. A thread may take only a lock of a higher rank than those it
// holds. docs/LOCKING.md says what each protects.
#pragma once

#include <cstdint>

namespace cowraid {

enum class LockRank : uint8_t {
    kRenewal,  // fuse/: who reads what it stores in a page of the kernel
    kSession,  // fuse/: session state, control socket clients
    kRemount,  // fs/: one change between reading and writing at a time
    kScrub,  // fs/: who finds the next piece of a scrub
    kCommitQueue,  // fs/: who waits for which commit
    kOperationGate,  // fs/: shared by every operation, exclusive to close a generation
    kInodeTable,  // fs/: one shard of the table of inodes in memory
    kRename,  // fs/: one directory rename at a time
    kInode,  // fs/: one inode's attributes, mapping and dirty data; nested by inode number
    kLedger,  // fs/: what is pending and reserved, who waits for room in memory
    kItemTable,  // fs/: one shard of an item table
    kBlockTable,  // fs/: one shard of a table of checksums or of moved blocks
    kSnapshot,  // fs/: the current committed root and who reads from older ones
    kSlots,  // fs/: member slots of the volume, planning of block groups
    kAllocator,  // alloc/: groups, open stripes, reservations
    kGroupSpace,  // alloc/: bitmap of one block group
    kNodeCache,  // btree/: one shard of the node cache
    kMemberSet,  // device/: members leave service
    kGroupMap,  // raid56/: the array's sorted mappings
    kPlug,  // raid56/: one shard of writes in place that wait
    kPlugRequest,  // raid56/: who waits for which of them; when workers wake
    kStripe,  // raid56/: one bucket of stripe locks
    kStripeCache,  // raid56/: one shard of the stripe cache
    kFsyncLog,  // journal/: batches and who waits for them
    kIntentLog,  // journal/: places in the logs, floor
    kDevice,  // device/: simulated and recording devices
    kLateIo,  // device/: reads that were given up
    kLeaf,  // anything that takes no other lock, but may allocate
    kMemory,  // base/: memory for large buffers
    kEnd,  // no lock: how many ranks there are
};

}  // namespace cowraid
