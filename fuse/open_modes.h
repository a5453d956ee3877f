// SPDX-License-Identifier: MIT
// Which opens of a file go past the page cache.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>

#include "base/mutex.h"
#include "base/units.h"

namespace cowraid {

enum class OpenCacheMode : uint8_t {
    kCached,  // page cache, write-through; pages survive until memory is needed
    kDirect,  // no page cache: one copy less, and direct writes beside each other
};

// A file is written past the page cache or read through it, not both at once: the kernel lets who reads a
// page see the new size before it drops the page, so that he finds zeros in the place of what was appended.
// And a mapping of a descriptor that goes past the cache makes the kernel drop all pages of the file, also
// those into which another program has just written: nobody has such pages then. Who comes while others have
// the file open does as they do; else who only writes goes past the cache, and who writes with O_DIRECT. Who
// only reads never makes others go past it. The kernel obeys O_DIRECT in either mode. Thread-safe.
class OpenModes {
public:
    // Of an open with these flags, before it is answered. It counts until end().
    OpenCacheMode begin(InodeNumber inode, int open_flags);
    void end(InodeNumber inode, OpenCacheMode mode);

private:
    struct Counts {
        uint32_t cached = 0, direct = 0;
    };
    struct Shard {
        Mutex mutex{LockRank::kLeaf};
        std::unordered_map<uint64_t, Counts> inodes CW_GUARDED_BY(mutex);
    };
    Shard& shard_of(InodeNumber inode) { return shards_[inode.value % shards_.size()]; }

    std::array<Shard, 64> shards_;
};

}  // namespace cowraid
