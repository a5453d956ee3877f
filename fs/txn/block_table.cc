// SPDX-License-Identifier: MIT
#include "fs/txn/block_table.h"

#include <algorithm>
#include <bit>

namespace cowraid {

BlockTable::Shard& BlockTable::shard_of(uint64_t window_address) const
{
    return shards_[window_address / kChecksumWindowBytes % kShardCount];
}

void BlockTable::put(VolumeAddress address, std::span<const uint64_t> values)
{
    size_t done = 0;
    while (done < values.size()) {
        const uint64_t at = address.value + done * kBlockBytes;
        const uint64_t window_address = round_down(at, kChecksumWindowBytes);
        const size_t first = (at - window_address) / kBlockBytes;
        const size_t count = std::min<size_t>(values.size() - done, kChecksumWindowBlocks - first);
        Shard& shard = shard_of(window_address);
        MutexLock lock(shard.mutex);
        const auto [found, inserted] = shard.windows.try_emplace(window_address);
        if (inserted)
            window_count_.fetch_add(1, std::memory_order_relaxed);
        BlockWindow& window = found->second;
        for (size_t i = 0; i < count; ++i) {
            window.values[first + i] = values[done + i];
            window.mask |= uint64_t{1} << (first + i);
        }
        done += count;
    }
}

void BlockTable::merge_into(VolumeAddress window_address, BlockWindow& into) const
{
    const Shard& shard = shard_of(window_address.value);
    MutexLock lock(shard.mutex);
    const auto at = shard.windows.find(window_address.value);
    if (at != shard.windows.end())
        into.fill_from(at->second);
}

bool BlockTable::any_in(VolumeAddress first, VolumeAddress end) const
{
    const uint64_t first_window = round_down(first.value, kChecksumWindowBytes);
    return window_count() > 0 && std::any_of(shards_.begin(), shards_.end(), [&](const Shard& shard) {
               MutexLock lock(shard.mutex);
               return std::any_of(shard.windows.begin(), shard.windows.end(), [&](const auto& window) {
                   return window.first >= first_window && window.first < end.value;
               });
           });
}

std::vector<BlockTable::Entry> BlockTable::sorted() const
{
    std::vector<Entry> entries;
    entries.reserve(window_count());
    for (const Shard& shard : shards_) {
        MutexLock lock(shard.mutex);
        for (const auto& [address, window] : shard.windows)
            entries.push_back({VolumeAddress{address}, window});
    }
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.window_address < b.window_address; });
    return entries;
}

}  // namespace cowraid
