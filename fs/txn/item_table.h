// SPDX-License-Identifier: MIT
// Changes of one transaction to a file tree, in memory: a sorted map of puts and tombstones. Sharded by the
// key's object, so that operations on different inodes do not meet, and each inode's items stay in order.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "format/key.h"

namespace cowraid {

// What one layer says about a key.
enum class ItemState : uint8_t { kAbsent, kPresent, kErased };

class ItemTable {
public:
    void put(const Key& key, std::span<const std::byte> value);
    void erase(const Key& key);

    ItemState get(const Key& key, ItemBytes& out) const;
    // First entry (put or tombstone) with key >= `from` and the same object; kAbsent when there is none.
    ItemState first_at_or_after(const Key& from, Key& found, ItemBytes& out) const;
    // Last entry with key <= `bound` and the same object.
    ItemState last_at_or_before(const Key& bound, Key& found, ItemBytes& out) const;

    using Change = ItemChange;
    // Everything in key order. Only for a table that no longer changes.
    [[nodiscard]] std::vector<Change> sorted() const;

    // From now on, remembers what is put and erased until take_unlogged(). Requires that nobody changes it.
    void start_tracking() { tracking_ = true; }
    // What changed since the last call, as it is now; each shard's in no order. False when it has more than
    // `bytes_max` of payload: then it is incomplete, and what is missing is not remembered any more either.
    // Requires that nobody changes the table.
    bool take_unlogged(uint64_t bytes_max, std::vector<Change>& out);

    [[nodiscard]] uint64_t entry_count() const { return entry_count_.load(std::memory_order_relaxed); }
    [[nodiscard]] uint64_t byte_count() const { return byte_count_.load(std::memory_order_relaxed); }
    // Entries that were looked for; counted in builds with debug checks, for tests of what operations cost.
    [[nodiscard]] uint64_t look_count() const { return look_count_.load(std::memory_order_relaxed); }
    // What it takes, about: its entries are nodes of maps.
    [[nodiscard]] uint64_t memory_bytes() const
    {
        constexpr uint64_t kEntryBytes = 128;
        return byte_count() + entry_count() * kEntryBytes;
    }

private:
    struct Entry {
        std::optional<ItemBytes> value;  // empty: tombstone
        bool unlogged = false;  // in the shard's list
    };
    static constexpr size_t kShardCount = 64;
    struct Shard {
        mutable Mutex mutex{LockRank::kItemTable};
        std::map<Key, Entry> entries CW_GUARDED_BY(mutex);
        std::vector<Key> unlogged CW_GUARDED_BY(mutex);
    };
    [[nodiscard]] Shard& shard_of(uint64_t object) const;
    void count_look() const;
    void store(const Key& key, std::optional<ItemBytes> value);

    mutable std::array<Shard, kShardCount> shards_;
    bool tracking_ = false;
    std::atomic<uint64_t> entry_count_{0};
    std::atomic<uint64_t> byte_count_{0};
    mutable std::atomic<uint64_t> look_count_{0};
};

}  // namespace cowraid
