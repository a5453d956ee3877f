// SPDX-License-Identifier: MIT
#include "fs/item_table.h"

#include <algorithm>

namespace cowraid {

ItemTable::Shard& ItemTable::shard_of(uint64_t object) const
{
    return shards_[object * 0x9e3779b97f4a7c15u >> 58];
}

void ItemTable::store(const Key& key, Entry entry)
{
    Shard& shard = shard_of(key.object);
    const uint64_t bytes = entry ? entry->size() : 0;
    MutexLock lock(shard.mutex);
    auto [at, inserted] = shard.entries.try_emplace(key);
    if (inserted)
        entry_count_.fetch_add(1, std::memory_order_relaxed);
    const uint64_t before = at->second ? at->second->size() : 0;
    byte_count_.fetch_add(bytes - before, std::memory_order_relaxed);
    at->second = std::move(entry);
}

void ItemTable::put(const Key& key, std::span<const std::byte> value)
{
    store(key, ItemBytes(value.begin(), value.end()));
}

void ItemTable::erase(const Key& key)
{
    store(key, std::nullopt);
}

ItemState ItemTable::get(const Key& key, ItemBytes& out) const
{
    const Shard& shard = shard_of(key.object);
    MutexLock lock(shard.mutex);
    const auto at = shard.entries.find(key);
    if (at == shard.entries.end())
        return ItemState::kAbsent;
    if (!at->second)
        return ItemState::kErased;
    out = *at->second;
    return ItemState::kPresent;
}

ItemState ItemTable::first_at_or_after(const Key& from, Key& found, ItemBytes& out) const
{
    const Shard& shard = shard_of(from.object);
    MutexLock lock(shard.mutex);
    const auto at = shard.entries.lower_bound(from);
    if (at == shard.entries.end() || at->first.object != from.object)
        return ItemState::kAbsent;
    found = at->first;
    if (!at->second)
        return ItemState::kErased;
    out = *at->second;
    return ItemState::kPresent;
}

ItemState ItemTable::last_at_or_before(const Key& bound, Key& found, ItemBytes& out) const
{
    const Shard& shard = shard_of(bound.object);
    MutexLock lock(shard.mutex);
    auto at = shard.entries.upper_bound(bound);
    if (at == shard.entries.begin())
        return ItemState::kAbsent;
    --at;
    if (at->first.object != bound.object)
        return ItemState::kAbsent;
    found = at->first;
    if (!at->second)
        return ItemState::kErased;
    out = *at->second;
    return ItemState::kPresent;
}

std::vector<ItemTable::Change> ItemTable::sorted() const
{
    std::vector<Change> changes;
    changes.reserve(entry_count());
    for (const Shard& shard : shards_) {
        MutexLock lock(shard.mutex);
        for (const auto& [key, entry] : shard.entries)
            changes.push_back({key, !entry, entry ? *entry : ItemBytes()});
    }
    std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.key < b.key; });
    return changes;
}

}  // namespace cowraid
