// SPDX-License-Identifier: MIT
// What the kernel may hold of files in its page cache, as far as the requests told.
//
// Pages get there by READ and WRITE requests of the page cache; a direct write passes it by. The kernel
// drops the pages of a direct write before it sends the request, but a reader may bring them back before the
// write is applied, and nobody drops them then when the write is asynchronous. So whoever serves a direct
// write asks here, when it is applied and not answered yet, whether pages of it may be in the cache.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/units.h"

namespace cowraid {

// A half-open range of bytes of a file.
struct PageRange {
    uint64_t begin = 0;
    uint64_t end = 0;
    friend bool operator==(const PageRange&, const PageRange&) = default;
};

// Thread-safe. May hold more than the kernel does, never less.
class PageCacheMap {
public:
    // The page cache asked to read or write `bytes`, not 0. Call before the file's data is touched.
    void note_filled(InodeNumber inode, uint64_t offset, uint64_t bytes);

    // A direct write is applied. True: the kernel may hold pages of it that are older. The caller then makes
    // it drop those that are written whole, renews the bytes of the others, and calls end_drop(). Meanwhile
    // every direct write to the inode gets true, because pages that this one forgot may still be there.
    bool begin_drop(InodeNumber inode, uint64_t offset, uint64_t bytes);
    void end_drop(InodeNumber inode);

    // For the moment in which the kernel has let go of an inode: take the version, find out that no reference
    // is left, then forget what is known, unless something was noted since.
    [[nodiscard]] uint64_t version(InodeNumber inode) const;
    void forget(InodeNumber inode, uint64_t version);

    [[nodiscard]] size_t inode_count() const;
    // For tests.
    [[nodiscard]] std::vector<PageRange> ranges(InodeNumber inode) const;

    // An inode with more ranges than this counts as cached from the first to the last.
    static constexpr size_t kRangesMax = 256;

private:
    struct Cached {
        std::vector<PageRange> ranges;  // in whole pages, rising, with gaps between them
        uint64_t version = 0;  // of the last note_filled()
        uint32_t drop_count = 0;  // between begin_drop() and end_drop()
    };
    struct Shard {
        mutable Mutex mutex{LockRank::kLeaf};
        std::unordered_map<uint64_t, Cached> inodes CW_GUARDED_BY(mutex);
        uint64_t version CW_GUARDED_BY(mutex) = 0;
    };
    static constexpr size_t kShardCount = 64;

    [[nodiscard]] Shard& shard_of(InodeNumber inode) const { return shards_[inode.value % kShardCount]; }

    mutable std::array<Shard, kShardCount> shards_;
};

}  // namespace cowraid
