// SPDX-License-Identifier: MIT
#include "fuse/page_cache_map.h"

#include <algorithm>

#include "base/assert.h"

namespace cowraid {

namespace {

using Ranges = std::vector<PageRange>;

PageRange whole_pages(uint64_t offset, uint64_t bytes)
{
    return {round_down(offset, kBlockBytes), round_up(offset + bytes, kBlockBytes)};
}

// The first range that ends at `offset` or behind it.
Ranges::iterator first_from(Ranges& ranges, uint64_t offset)
{
    return std::lower_bound(ranges.begin(), ranges.end(), offset,
                            [](const PageRange& range, uint64_t at) { return range.end < at; });
}

void add(Ranges& ranges, PageRange added)
{
    const auto first = first_from(ranges, added.begin);
    auto last = first;
    for (; last != ranges.end() && last->begin <= added.end; ++last) {
        added.begin = std::min(added.begin, last->begin);
        added.end = std::max(added.end, last->end);
    }
    if (first == last) {
        ranges.insert(first, added);
    } else {
        *first = added;
        ranges.erase(first + 1, last);
    }
}

// False: nothing of it was there.
bool remove(Ranges& ranges, PageRange removed)
{
    auto first = first_from(ranges, removed.begin + 1);
    auto last = first;
    Ranges kept;
    for (; last != ranges.end() && last->begin < removed.end; ++last) {
        if (last->begin < removed.begin)
            kept.push_back({last->begin, removed.begin});
        if (last->end > removed.end)
            kept.push_back({removed.end, last->end});
    }
    if (first == last)
        return false;
    first = ranges.erase(first, last);
    ranges.insert(first, kept.begin(), kept.end());
    return true;
}

void bound(Ranges& ranges)
{
    if (ranges.size() <= PageCacheMap::kRangesMax)
        return;
    ranges.front().end = ranges.back().end;
    ranges.resize(1);
}

}  // namespace

void PageCacheMap::note_filled(InodeNumber inode, uint64_t offset, uint64_t bytes)
{
    Shard& shard = shard_of(inode);
    MutexLock lock(shard.mutex);
    Cached& cached = shard.inodes[inode.value];
    cached.version = ++shard.version;
    add(cached.ranges, whole_pages(offset, bytes));
    bound(cached.ranges);
}

bool PageCacheMap::begin_drop(InodeNumber inode, uint64_t offset, uint64_t bytes)
{
    Shard& shard = shard_of(inode);
    MutexLock lock(shard.mutex);
    const auto at = shard.inodes.find(inode.value);
    if (at == shard.inodes.end())
        return false;
    Cached& cached = at->second;
    const PageRange pages = whole_pages(offset, bytes);
    if (!remove(cached.ranges, pages) && cached.drop_count == 0)
        return false;
    if (offset % kBlockBytes != 0)
        add(cached.ranges, {pages.begin, pages.begin + kBlockBytes});
    if ((offset + bytes) % kBlockBytes != 0)
        add(cached.ranges, {pages.end - kBlockBytes, pages.end});
    bound(cached.ranges);
    ++cached.drop_count;
    return true;
}

void PageCacheMap::end_drop(InodeNumber inode)
{
    Shard& shard = shard_of(inode);
    MutexLock lock(shard.mutex);
    const auto at = shard.inodes.find(inode.value);
    CW_ASSERT(at != shard.inodes.end() && at->second.drop_count > 0);
    --at->second.drop_count;
}

uint64_t PageCacheMap::version(InodeNumber inode) const
{
    const Shard& shard = shard_of(inode);
    MutexLock lock(shard.mutex);
    const auto at = shard.inodes.find(inode.value);
    return at == shard.inodes.end() ? 0 : at->second.version;
}

void PageCacheMap::forget(InodeNumber inode, uint64_t version)
{
    Shard& shard = shard_of(inode);
    MutexLock lock(shard.mutex);
    const auto at = shard.inodes.find(inode.value);
    if (at != shard.inodes.end() && at->second.version == version && at->second.drop_count == 0)
        shard.inodes.erase(at);
}

size_t PageCacheMap::inode_count() const
{
    size_t total = 0;
    for (const Shard& shard : shards_) {
        MutexLock lock(shard.mutex);
        total += shard.inodes.size();
    }
    return total;
}

std::vector<PageRange> PageCacheMap::ranges(InodeNumber inode) const
{
    const Shard& shard = shard_of(inode);
    MutexLock lock(shard.mutex);
    const auto at = shard.inodes.find(inode.value);
    return at == shard.inodes.end() ? std::vector<PageRange>() : at->second.ranges;
}

}  // namespace cowraid
