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
#include "btree/key.h"

namespace cowraid {

using ItemBytes = std::vector<std::byte>;

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

    struct Change {
        Key key;
        bool erased;
        ItemBytes value;
    };
    // Everything in key order. Only for a table that no longer changes.
    [[nodiscard]] std::vector<Change> sorted() const;

    [[nodiscard]] uint64_t entry_count() const { return entry_count_.load(std::memory_order_relaxed); }
    [[nodiscard]] uint64_t byte_count() const { return byte_count_.load(std::memory_order_relaxed); }

private:
    using Entry = std::optional<ItemBytes>;  // empty: tombstone
    static constexpr size_t kShardCount = 64;
    struct Shard {
        mutable Mutex mutex{LockRank::kItemTable};
        std::map<Key, Entry> entries CW_GUARDED_BY(mutex);
    };
    [[nodiscard]] Shard& shard_of(uint64_t object) const;
    void store(const Key& key, Entry entry);

    mutable std::array<Shard, kShardCount> shards_;
    std::atomic<uint64_t> entry_count_{0};
    std::atomic<uint64_t> byte_count_{0};
};

}  // namespace cowraid
