// SPDX-License-Identifier: MIT
// What a mount gives back of its memory, and when.
#pragma once

#include <cstdint>

#include "fs/volume/mount_options.h"

namespace cowraid {

// Where a mount holds most of what it may take, what nobody uses goes back to the kernel at once. One thread.
class MemoryPace {
public:
    explicit MemoryPace(const MountOptions& options);

    void step();

private:
    // What is outside of both, and what they grow by until the next look, is the rest.
    const uint64_t most_, held_max_;
    uint64_t next_ms_ = 0;
};

// Everything that nobody uses, at once: nobody will soon.
void release_unused_memory();

}  // namespace cowraid
