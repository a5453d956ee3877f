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
bool reply_open(fuse_req_t request, OpenCacheMode mode, uint64_t handle)
{
    fuse_open_out answer{};
    answer.fh = handle;
    answer.open_flags = FOPEN_KEEP_CACHE;
    if (mode == OpenCacheMode::kDirect)
        answer.open_flags |= FOPEN_DIRECT_IO | kOpenParallelDirectWrites;
    return fuse_reply_buf(request, reinterpret_cast<const char*>(&answer), sizeof answer) == 0;
}

}  // namespace cowraid
