// SPDX-License-Identifier: MIT
#include "fs/txn/item_table.h"

#include <algorithm>

namespace cowraid {

ItemTable::Shard& ItemTable::shard_of(uint64_t object) const
{
    return shards_[object * 0x9e3779b97f4a7c15u >> 58];
}

void ItemTable::store(const Key& key, std::optional<ItemBytes> value)
{
    Shard& shard = shard_of(key.object);
    const uint64_t bytes = value ? value->size() : 0;
    MutexLock lock(shard.mutex);
    auto [at, inserted] = shard.entries.try_emplace(key);
    Entry& entry = at->second;
    if (inserted)
        entry_count_.fetch_add(1, std::memory_order_relaxed);
    const uint64_t before = entry.value ? entry.value->size() : 0;
    byte_count_.fetch_add(bytes - before, std::memory_order_relaxed);
    entry.value = std::move(value);
    if (!tracking_ || entry.unlogged)
        return;
    entry.unlogged = true;
    shard.unlogged.push_back(key);
}

bool ItemTable::take_unlogged(uint64_t bytes_max, std::vector<Change>& out)
{
    uint64_t bytes = 0;
    for (Shard& shard : shards_) {
        MutexLock lock(shard.mutex);
        for (const Key& key : shard.unlogged) {
            Entry& entry = shard.entries.at(key);
            entry.unlogged = false;
            bytes += entry.value ? entry.value->size() : 0;
            if (bytes > bytes_max)
                return false;
            out.push_back({key, !entry.value, entry.value ? *entry.value : ItemBytes()});
        }
        shard.unlogged.clear();
    }
    return true;
}

void ItemTable::put(const Key& key, std::span<const std::byte> value)
{
    store(key, ItemBytes(value.begin(), value.end()));
}

void ItemTable::erase(const Key& key)
{
    store(key, std::nullopt);
}

void ItemTable::count_look() const
{
#ifdef COWRAID_DEBUG
    look_count_.fetch_add(1, std::memory_order_relaxed);
#endif
}

ItemState ItemTable::get(const Key& key, ItemBytes& out) const
{
    count_look();
    const Shard& shard = shard_of(key.object);
    MutexLock lock(shard.mutex);
    const auto at = shard.entries.find(key);
    if (at == shard.entries.end())
        return ItemState::kAbsent;
    if (!at->second.value)
        return ItemState::kErased;
    out = *at->second.value;
    return ItemState::kPresent;
}

ItemState ItemTable::first_at_or_after(const Key& from, Key& found, ItemBytes& out) const
{
    count_look();
    const Shard& shard = shard_of(from.object);
    MutexLock lock(shard.mutex);
    const auto at = shard.entries.lower_bound(from);
    if (at == shard.entries.end() || at->first.object != from.object)
        return ItemState::kAbsent;
    found = at->first;
    if (!at->second.value)
        return ItemState::kErased;
    out = *at->second.value;
    return ItemState::kPresent;
}

ItemState ItemTable::last_at_or_before(const Key& bound, Key& found, ItemBytes& out) const
{
    count_look();
    const Shard& shard = shard_of(bound.object);
    MutexLock lock(shard.mutex);
    auto at = shard.entries.upper_bound(bound);
    if (at == shard.entries.begin())
        return ItemState::kAbsent;
    --at;
    if (at->first.object != bound.object)
        return ItemState::kAbsent;
    found = at->first;
    if (!at->second.value)
        return ItemState::kErased;
    out = *at->second.value;
    return ItemState::kPresent;
}

std::vector<ItemTable::Change> ItemTable::sorted() const
{
    std::vector<Change> changes;
    changes.reserve(entry_count());
    for (const Shard& shard : shards_) {
        MutexLock lock(shard.mutex);
        for (const auto& [key, entry] : shard.entries)
            changes.push_back({key, !entry.value, entry.value ? *entry.value : ItemBytes()});
    }
    std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.key < b.key; });
    return changes;
}

}  // namespace cowraid
