// SPDX-License-Identifier: MIT
#include "fs/commit/memory_pace.h"

#include <algorithm>

#include "base/clock.h"
#include "base/large_memory.h"
#include "base/malloc_release.h"

namespace cowraid {

namespace {

constexpr uint64_t kMemoryPauseMs = 200;

}  // namespace

MemoryPace::MemoryPace(const MountOptions& options)
    : most_(std::max(options.memory_bytes, options.node_cache_bytes + options.dirty_bytes_max +
                                               options.partial_writes.stripe_cache_bytes)),
      held_max_(most_ - std::min(most_ / 8 * 3, 256 * kMiB))
{
}

void MemoryPace::step()
{
    const uint64_t now = monotonic_ms();
    if (now < next_ms_)
        return;
    next_ms_ = now + kMemoryPauseMs;
    const MallocBytes malloc = malloc_bytes();
    if (malloc.held + large_bytes_held() < held_max_)
        return;
    large_trim();
    if (malloc.free >= most_ / 32)
        malloc_release();
}

void release_unused_memory()
{
    large_trim();
    large_trim();  // the first one keeps what was in use since the one before it
    malloc_release();
}

}  // namespace cowraid
