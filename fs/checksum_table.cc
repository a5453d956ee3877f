// SPDX-License-Identifier: MIT
#include "fs/checksum_table.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace cowraid {

ChecksumTable::Shard& ChecksumTable::shard_of(uint64_t window_address) const
{
    return shards_[window_address / kChecksumWindowBytes % kShardCount];
}

void ChecksumTable::put(VolumeAddress address, std::span<const Checksum> checksums)
{
    size_t done = 0;
    while (done < checksums.size()) {
        const uint64_t at = address.value + done * kBlockBytes;
        const uint64_t window_address = round_down(at, kChecksumWindowBytes);
        const size_t first = (at - window_address) / kBlockBytes;
        const size_t count = std::min<size_t>(checksums.size() - done, kChecksumWindowBlocks - first);
        Shard& shard = shard_of(window_address);
        MutexLock lock(shard.mutex);
        ChecksumWindow& window = shard.windows[window_address];
        for (size_t i = 0; i < count; ++i) {
            window.checksums[first + i] = checksums[done + i];
            window.mask |= uint64_t{1} << (first + i);
        }
        done += count;
    }
}

void ChecksumTable::merge_into(VolumeAddress window_address, ChecksumWindow& into) const
{
    const Shard& shard = shard_of(window_address.value);
    MutexLock lock(shard.mutex);
    const auto at = shard.windows.find(window_address.value);
    if (at == shard.windows.end())
        return;
    uint64_t news = at->second.mask & ~into.mask;
    into.mask |= news;
    while (news != 0) {
        const auto bit = static_cast<size_t>(std::countr_zero(news));
        into.checksums[bit] = at->second.checksums[bit];
        news &= news - 1;
    }
}

std::vector<ChecksumTable::Entry> ChecksumTable::sorted() const
{
    std::vector<Entry> entries;
    for (const Shard& shard : shards_) {
        MutexLock lock(shard.mutex);
        for (const auto& [address, window] : shard.windows)
            entries.push_back({VolumeAddress{address}, window});
    }
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.window_address < b.window_address; });
    return entries;
}

std::vector<std::byte> encode_checksum_window(const ChecksumWindow& window)
{
    std::vector<std::byte> payload(sizeof(DiskChecksumWindow) +
                                   sizeof(Checksum) * std::popcount(window.mask));
    DiskChecksumWindow head;
    head.mask = window.mask;
    std::memcpy(payload.data(), &head, sizeof head);
    std::byte* at = payload.data() + sizeof head;
    for (size_t i = 0; i < kChecksumWindowBlocks; ++i) {
        if ((window.mask >> i & 1) == 0)
            continue;
        const le64 checksum = window.checksums[i];
        std::memcpy(at, &checksum, sizeof checksum);
        at += sizeof checksum;
    }
    return payload;
}

bool decode_checksum_window(std::span<const std::byte> payload, ChecksumWindow& out)
{
    DiskChecksumWindow head;
    if (payload.size() < sizeof head)
        return false;
    std::memcpy(&head, payload.data(), sizeof head);
    out.mask = head.mask;
    if (payload.size() != sizeof head + sizeof(Checksum) * static_cast<size_t>(std::popcount(out.mask)))
        return false;
    const std::byte* at = payload.data() + sizeof head;
    for (size_t i = 0; i < kChecksumWindowBlocks; ++i) {
        if ((out.mask >> i & 1) == 0)
            continue;
        le64 checksum;
        std::memcpy(&checksum, at, sizeof checksum);
        out.checksums[i] = checksum;
        at += sizeof checksum;
    }
    return true;
}

}  // namespace cowraid
