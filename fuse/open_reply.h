// SPDX-License-Identifier: MIT
// How the kernel caches an open file.
#pragma once

#include <fuse3/fuse_lowlevel.h>

#include <cstdint>

#include "fuse/open_modes.h"

namespace cowraid {

// Answers OPEN with the handle that RELEASE will name; false: nobody waits for it any more, and no RELEASE
// comes. By hand, because libfuse 3.14 cannot say FOPEN_PARALLEL_DIRECT_WRITES.
bool reply_open(fuse_req_t request, int open_flags, OpenCacheMode mode, uint64_t handle);

}  // namespace cowraid
