// SPDX-License-Identifier: MIT
// What malloc keeps for the next user (decision 0010), given back.
#pragma once

#include <cstddef>

namespace cowraid {

// Gives free memory of malloc back to the kernel, as far as whole pages of it are free. Takes milliseconds
// per 100 MiB, for which others that need fresh memory wait: for a process that is idle. Thread-safe.
void malloc_release();

// Bytes that malloc holds from the kernel, and the part of them that is whole pages nobody uses. 0 where
// malloc does not say so. Thread-safe.
struct MallocBytes {
    size_t held = 0, free = 0;
};
MallocBytes malloc_bytes();

// What the caches of threads take together, about; malloc's own default is the most that it will be. Before
// threads start.
void malloc_limit_caches(size_t bytes);

}  // namespace cowraid
