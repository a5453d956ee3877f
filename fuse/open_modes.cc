// SPDX-License-Identifier: MIT
#include "fuse/open_modes.h"

#include <fcntl.h>

#include "base/assert.h"

namespace cowraid {

OpenCacheMode OpenModes::begin(InodeNumber inode, int open_flags)
{
    const int access = open_flags & O_ACCMODE;
    Shard& shard = shard_of(inode);
    MutexLock lock(shard.mutex);
    Counts& counts = shard.inodes[inode.value];
    const bool writes_past = access == O_WRONLY || (access == O_RDWR && (open_flags & O_DIRECT) != 0);
    const OpenCacheMode mode = counts.cached == 0 && (counts.direct > 0 || writes_past)
                                   ? OpenCacheMode::kDirect
                                   : OpenCacheMode::kCached;
    ++(mode == OpenCacheMode::kCached ? counts.cached : counts.direct);
    return mode;
}

void OpenModes::end(InodeNumber inode, OpenCacheMode mode)
{
    Shard& shard = shard_of(inode);
    MutexLock lock(shard.mutex);
    const auto at = shard.inodes.find(inode.value);
    CW_ASSERT(at != shard.inodes.end());
    Counts& counts = at->second;
    uint32_t& count = mode == OpenCacheMode::kCached ? counts.cached : counts.direct;
    CW_ASSERT(count > 0);
    if (--count == 0 && counts.cached + counts.direct == 0)
        shard.inodes.erase(at);
}

}  // namespace cowraid
