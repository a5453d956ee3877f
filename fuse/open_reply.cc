// SPDX-License-Identifier: MIT
#include "fuse/open_reply.h"

#include <fcntl.h>
#include <linux/fuse.h>

namespace cowraid {

namespace {

// Linux 6.2; older headers do not have it and older kernels ignore it.
constexpr uint32_t kOpenParallelDirectWrites = 1 << 6;

}  // namespace

// Every open keeps the cache. One that does not makes the kernel drop all pages of the inode, also those into
// which a program has just written and whose WRITE has not come yet: a reader would bring back what was there
// before, for good.
//
// Beside a direct write that others may join, a mapping of the file by the same program can wait for the
// write, and the write for the mapping (mmap_lock; Linux 6.9 and later): so only O_DIRECT has them.
bool reply_open(fuse_req_t request, int open_flags, OpenCacheMode mode, uint64_t handle)
{
    fuse_open_out answer{};
    answer.fh = handle;
    answer.open_flags = FOPEN_KEEP_CACHE;
    if (mode == OpenCacheMode::kDirect)
        answer.open_flags |= FOPEN_DIRECT_IO;
    if (mode == OpenCacheMode::kDirect && (open_flags & O_DIRECT) != 0)
        answer.open_flags |= kOpenParallelDirectWrites;
    return fuse_reply_buf(request, reinterpret_cast<const char*>(&answer), sizeof answer) == 0;
}

}  // namespace cowraid
