// SPDX-License-Identifier: MIT
// What the kernel may hold of files in its page cache, as far as the requests told.
//
// Pages get there by READ and WRITE requests of the page cache; a direct write passes it by. The kernel
// drops the pages of a direct write before it sends the request, but a reader may bring them back before the
// write is applied, and nobody drops them then when the write is asynchronous. So whoever serves a direct
// write asks here, when it is applied and not answered yet, whether pages of it may be in the cache.
//
// A WRITE of the page cache is answered before a direct write begins, because both hold the inode's lock, or
// it comes while the file is open for direct writing. Only then must its pages be known.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/units.h"
#include "fuse/page_set.h"

namespace cowraid {

// A half-open range of bytes of a file.
struct PageRange {
    uint64_t begin = 0;
    uint64_t end = 0;
    friend bool operator==(const PageRange&, const PageRange&) = default;
};

// Thread-safe. May hold more than the kernel does, never less: of an inode whose pages would take too much
// memory it holds every page. Where the inodes take too much, those that nobody uses are no longer listed.
class PageCacheMap {
public:
    static constexpr size_t kMemoryMax = 64 * kMiB;
    // What an inode takes that is listed, beside its pages.
    static constexpr size_t kEntryBytes = 128;

    // Of all inodes together, roughly. Those that are in use stay, without their pages if need be.
    explicit PageCacheMap(size_t memory_max = kMemoryMax) : share_(memory_max / kShardCount) { }

    // An open that may write past the page cache: call before it is answered, and after it ended.
    void begin_direct(InodeNumber inode);
    void end_direct(InodeNumber inode);
    // An open with which a mapping may be written to, likewise. The kernel keeps it as long as the mapping.
    void begin_mapped(InodeNumber inode);
    void end_mapped(InodeNumber inode);
    // Whether a mapping may have written to pages that no request has told of.
    [[nodiscard]] bool may_be_mapped(InodeNumber inode) const;

    // The page cache asked to read or write `bytes`, not 0. Call before the file's data is touched.
    void note_read(InodeNumber inode, uint64_t offset, uint64_t bytes);
    void note_written(InodeNumber inode, uint64_t offset, uint64_t bytes);

    // A direct write is applied. True: the kernel may hold pages of it that are older. The caller then makes
    // it drop those that are written whole, renews the bytes of the others, and calls end_drop(). Meanwhile
    // every direct write of one of its pages gets true, because what this one forgot may still be there.
    bool begin_drop(InodeNumber inode, uint64_t offset, uint64_t bytes);
    // The same for a change other than a direct write: also of pages that are not known.
    void begin_any_drop(InodeNumber inode, uint64_t offset, uint64_t bytes);
    void end_drop(InodeNumber inode, uint64_t offset, uint64_t bytes);
    // Instead of end_drop() where nothing was dropped: from now on any page of the inode may be there.
    void give_up_drop(InodeNumber inode, uint64_t offset, uint64_t bytes);

    // For the moment in which the kernel has let go of an inode: take the version, find out that no reference
    // is left, then forget what is known, unless something was noted since.
    [[nodiscard]] uint64_t version(InodeNumber inode) const;
    void forget(InodeNumber inode, uint64_t version);

    [[nodiscard]] size_t inode_count() const;
    // In bytes.
    [[nodiscard]] size_t memory() const;
    // For tests.
    [[nodiscard]] std::vector<PageRange> ranges(InodeNumber inode) const;

private:
    // What is known of an inode that is listed.
    struct Cached {
        PageSet pages;
        uint64_t version = 0;  // of the last note
        uint32_t drop_count = 0;  // in Shard::drops
        uint32_t direct_open_count = 0;
        uint32_t mapped_open_count = 0;
        bool counted_used = false;  // in Shard::used_count

        bool take(uint64_t offset, uint64_t bytes);
        void start_drop(uint64_t offset, uint64_t bytes);
        [[nodiscard]] bool in_use() const
        {
            return drop_count > 0 || direct_open_count > 0 || mapped_open_count > 0;
        }
    };
    using Inodes = std::unordered_map<uint64_t, Cached>;
    // Pages between begin_drop() and end_drop().
    struct Drop {
        uint64_t inode = 0;
        uint64_t begin = 0, end = 0;
        friend bool operator==(const Drop&, const Drop&) = default;
    };
    struct Shard {
        mutable Mutex mutex{LockRank::kLeaf};
        Inodes inodes CW_GUARDED_BY(mutex);
        std::vector<Drop> drops CW_GUARDED_BY(mutex);  // in any order
        uint64_t version CW_GUARDED_BY(mutex) = 0;
        size_t memory CW_GUARDED_BY(mutex) = 0;
        size_t used_count CW_GUARDED_BY(mutex) = 0;
        // The kernel may hold every page of an inode up to this one that is not listed, no page of one above.
        // Newer inodes have larger numbers.
        uint64_t unknown_last CW_GUARDED_BY(mutex) = 0;
    };
    static constexpr size_t kShardCount = 64;
    static_assert(sizeof(Inodes::value_type) + 32 <= kEntryBytes, "and what the map adds");

    [[nodiscard]] Shard& shard_of(InodeNumber inode) const { return shards_[inode.value % kShardCount]; }

    void begin_open(InodeNumber inode, uint32_t Cached::*count);
    void end_open(InodeNumber inode, uint32_t Cached::*count);
    void note(Shard& shard, Inodes::iterator at, uint64_t offset, uint64_t bytes) CW_REQUIRES(shard.mutex);
    // False: no page of the range may be there. `any`: as if one were.
    bool begin_drop(InodeNumber inode, uint64_t offset, uint64_t bytes, bool any);
    static Drop drop_of(InodeNumber inode, uint64_t offset, uint64_t bytes);
    // Whether one that is under way shares a page with it.
    static bool is_dropped(const Shard& shard, const Drop& drop) CW_REQUIRES(shard.mutex);
    // Returns its inode.
    static Inodes::iterator remove(Shard& shard, const Drop& drop) CW_REQUIRES(shard.mutex);

    // The inode, from now on listed.
    static Inodes::iterator list(Shard& shard, InodeNumber inode) CW_REQUIRES(shard.mutex);
    // After every change of an inode: keeps the shard within its share, and what says no more than that it is
    // not listed out of the list.
    void settle(Shard& shard, Inodes::iterator changed) CW_REQUIRES(shard.mutex);
    static void become_all(Shard& shard, Inodes::iterator at) CW_REQUIRES(shard.mutex);
    // Of an inode that nobody uses.
    static void lose(Shard& shard, Inodes::iterator at) CW_REQUIRES(shard.mutex);
    static void erase(Shard& shard, Inodes::iterator at) CW_REQUIRES(shard.mutex);

    const size_t share_;  // of each shard
    mutable std::array<Shard, kShardCount> shards_;
};

}  // namespace cowraid
