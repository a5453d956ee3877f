// SPDX-License-Identifier: MIT
// Inodes in memory.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <ctime>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/ref.h"
#include "base/status.h"
#include "base/units.h"
#include "format/inode_codec.h"
#include "fs/files/block_set.h"
#include "fs/files/dirty_map.h"
#include "fs/txn/item_store.h"
#include "fs/txn/operation.h"

namespace cowraid {

// Extended attributes that requests ask for all the time, by bit.
enum XattrKind : uint8_t {
    kOrdinaryXattr = 0,
    kAccessAclXattr = 1 << 0,
    kDefaultAclXattr = 1 << 1,
    kCapabilityXattr = 1 << 2,
};
inline constexpr uint8_t kAllXattrKinds = kAccessAclXattr | kDefaultAclXattr | kCapabilityXattr;

struct Inode : RefCounted<Inode> {
    explicit Inode(InodeNumber inode_number) : number(inode_number) { }

    const InodeNumber number;
    // Protects everything below. Nested locks go by rising inode number.
    Mutex mutex{LockRank::kInode};
    bool loaded CW_GUARDED_BY(mutex) = false;
    // The item is gone: the number is never used again.
    bool removed CW_GUARDED_BY(mutex) = false;
    InodeAttributes attributes CW_GUARDED_BY(mutex);
    // Kinds of extended attributes (XattrKind) that it has not: known since it was made or somebody looked.
    // Changed under the mutex.
    std::atomic<uint8_t> absent_xattrs{0};
    // Something of its dirty data is to be compressed: how many blocks it becomes shows then.
    bool compresses CW_GUARDED_BY(mutex) = false;
    // Made without a name (O_TMPFILE), and had none yet.
    bool temporary CW_GUARDED_BY(mutex) = false;
    // Data of the open transaction, and data on its way to members. Reads look at dirty, then flushing,
    // then the extent items. While `flushing` holds anything, extent items of this inode change only by
    // the flush itself: truncate, fallocate and removal wait for it first (fs/files/flush.h).
    DirtyMap dirty CW_GUARDED_BY(mutex);
    DirtyMap flushing CW_GUARDED_BY(mutex);
    // Odd while extent items change (under the mutex); readers without the mutex compare before and after.
    std::atomic<uint64_t> extent_version{0};
    // In the list of inodes with dirty data (fs/files/flush.h).
    bool on_dirty_list CW_GUARDED_BY(mutex) = false;

    // Blocks that became dirty, changed, or are dirty no more since the last record of the fsync log
    // (fs/files/change_tracker.h); empty while nothing is tracked.
    BlockSet unlogged CW_GUARDED_BY(mutex);
    // Number of the last change to more than times, or of a later one.
    uint64_t data_change CW_GUARDED_BY(mutex) = 0;

    // Guarded by the inode table's shard: somebody asked for it since the table last looked at it.
    bool asked_for = false;
};

// Inodes to be visited. Thread-safe.
class InodeList {
public:
    void add(Ref<Inode> inode)
    {
        MutexLock lock(mutex_);
        inodes_.push_back(std::move(inode));
    }
    std::vector<Ref<Inode>> take()
    {
        MutexLock lock(mutex_);
        return std::exchange(inodes_, {});
    }

private:
    Mutex mutex_{LockRank::kLeaf};
    std::vector<Ref<Inode>> inodes_ CW_GUARDED_BY(mutex_);
};

// Inodes by number, and the lookup references to them. An inode stays in memory while it has dirty data or
// users; others with lookup references stay as far as `idle_inodes_max` allows, those that were asked for
// last rather than others ("clock").
class InodeTable {
public:
    // `newest_change`: number of the newest change to anything, for inodes that come back into memory.
    InodeTable(ItemStore& store, const std::atomic<uint64_t>& newest_change, size_t idle_inodes_max)
        : store_(store), newest_change_(newest_change), shard_inodes_max_(idle_inodes_max / kShardCount + 1)
    {
    }

    // The inode, loaded. kNotFound (callers turn it into kStale where the number came from outside).
    Result<Ref<Inode>> get(InodeNumber number);
    // Adds a new inode with these attributes; the number must be fresh.
    Ref<Inode> create(InodeNumber number, const InodeAttributes& attributes);
    // One more lookup reference.
    void remember(const Ref<Inode>& inode, uint64_t count = 1);
    // Gives references back. kUnlinked: the last one, and mark_unlinked() was called: the caller deletes it.
    enum class Forgotten : uint8_t { kNo, kLast, kUnlinked };
    Forgotten forget(InodeNumber number, uint64_t count);
    // Whoever gives back the last reference deletes the inode, which has no names. False: there is none.
    [[nodiscard]] bool mark_unlinked(InodeNumber number);
    // Drops the object if nobody needs it, or others that are idle where there are too many.
    void prune(InodeNumber number);
    // Inodes in memory.
    [[nodiscard]] size_t size() const;

private:
    static constexpr size_t kShardCount = 64;
    struct Lookups {
        uint64_t count = 0;  // above 0
        bool unlinked = false;
    };
    struct Shard {
        mutable Mutex mutex{LockRank::kInodeTable};
        std::unordered_map<uint64_t, Ref<Inode>> inodes CW_GUARDED_BY(mutex);
        std::unordered_map<uint64_t, Lookups> lookups CW_GUARDED_BY(mutex);
        size_t hand CW_GUARDED_BY(mutex) = 0;  // bucket of `inodes` that is looked at next
    };
    [[nodiscard]] Shard& shard_of(InodeNumber number) const;
    // The object for the number, a new one if there is none.
    Ref<Inode> object(InodeNumber number);
    Status load(Inode& inode);
    static bool may_go(const Shard& shard, const Inode& inode) CW_REQUIRES(shard.mutex);
    // Drops some idle inodes of a shard that has too many.
    void sweep(Shard& shard) const CW_REQUIRES(shard.mutex);

    ItemStore& store_;
    const std::atomic<uint64_t>& newest_change_;
    const size_t shard_inodes_max_;
    mutable std::array<Shard, kShardCount> shards_;
};

// Writes the inode's attributes into its item. `changed`: whether more than times did, so that fdatasync
// cares. Requires inode.mutex.
enum class Changed : uint8_t { kContent, kTimes };
void store_inode(Operation& operation, Inode& inode, Changed changed = Changed::kContent);

// Locks up to five inodes in the order of their numbers; equal ones once. Not analysed: which locks it takes,
// and so lets go, is known when it runs only.
class InodeLocks {
public:
    explicit InodeLocks(std::initializer_list<Inode*> inodes) CW_NO_THREAD_SAFETY_ANALYSIS;
    ~InodeLocks() CW_NO_THREAD_SAFETY_ANALYSIS;
    InodeLocks(const InodeLocks&) = delete;
    InodeLocks& operator=(const InodeLocks&) = delete;

private:
    std::array<Inode*, 5> locked_{};
    size_t count_ = 0;
};

}  // namespace cowraid
