// SPDX-License-Identifier: MIT
// How the kernel caches an open file.
#pragma once

#include <fuse3/fuse_lowlevel.h>

#include <cstdint>

namespace cowraid {

enum class OpenCacheMode : uint8_t {
    kCached,  // page cache, write-through; pages survive until memory is needed
    kDirect,  // no page cache: one copy less, and direct writes beside each other
};

// O_DIRECT and write-only opens go without the page cache, the others may be read again or mapped. A kernel
// that neither writes back nor drops pages before a direct write to such an open (`drops_before_direct`) gets
// kCached for all: write-only opens then write through the cache, and for O_DIRECT, which it goes on obeying,
// its common code does both.
OpenCacheMode open_cache_mode(int open_flags, bool drops_before_direct);

// Answers OPEN with the handle that RELEASE will name; false: nobody waits for it any more, and no RELEASE
// comes. By hand, because libfuse 3.14 cannot say FOPEN_PARALLEL_DIRECT_WRITES.
bool reply_open(fuse_req_t request, OpenCacheMode mode, uint64_t handle);

}  // namespace cowraid
