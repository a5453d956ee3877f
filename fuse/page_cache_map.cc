// SPDX-License-Identifier: MIT
#include "fuse/page_cache_map.h"

#include "base/assert.h"

namespace cowraid {

namespace {

struct Pages {
    uint64_t begin, end;
};

Pages whole_pages(uint64_t offset, uint64_t bytes)
{
    return {offset / kBlockBytes, divide_up(offset + bytes, kBlockBytes)};
}

}  // namespace

bool PageCacheMap::Cached::take(uint64_t offset, uint64_t bytes)
{
    const Pages range = whole_pages(offset, bytes);
    return pages.remove(range.begin, range.end);
}

// Pages of which a part is renewed may be there when the drop is over.
void PageCacheMap::Cached::start_drop(uint64_t offset, uint64_t bytes)
{
    const Pages range = whole_pages(offset, bytes);
    if (offset % kBlockBytes != 0)
        pages.add(range.begin, range.begin + 1);
    if ((offset + bytes) % kBlockBytes != 0)
        pages.add(range.end - 1, range.end);
    ++drop_count;
}

void PageCacheMap::begin_direct(InodeNumber inode)
{
    Shard& shard = shard_of(inode);
    MutexLock lock(shard.mutex);
    ++shard.inodes[inode.value].direct_open_count;
}

void PageCacheMap::begin_mapped(InodeNumber inode)
{
    Shard& shard = shard_of(inode);
    MutexLock lock(shard.mutex);
    ++shard.inodes[inode.value].mapped_open_count;
}

void PageCacheMap::end_direct(InodeNumber inode)
{
    end_open(inode, &Cached::direct_open_count);
}

void PageCacheMap::end_mapped(InodeNumber inode)
{
    end_open(inode, &Cached::mapped_open_count);
}

void PageCacheMap::end_open(InodeNumber inode, uint32_t Cached::*count)
{
    Shard& shard = shard_of(inode);
    MutexLock lock(shard.mutex);
    const auto at = shard.inodes.find(inode.value);
    CW_ASSERT(at != shard.inodes.end() && at->second.*count > 0);
    --(at->second.*count);
    if (!at->second.in_use() && at->second.pages.empty())
        erase(shard, at);
}

bool PageCacheMap::may_be_mapped(InodeNumber inode) const
{
    const Shard& shard = shard_of(inode);
    MutexLock lock(shard.mutex);
    const auto at = shard.inodes.find(inode.value);
    return at != shard.inodes.end() && at->second.direct_open_count + at->second.mapped_open_count > 0;
}

void PageCacheMap::note_read(InodeNumber inode, uint64_t offset, uint64_t bytes)
{
    Shard& shard = shard_of(inode);
    MutexLock lock(shard.mutex);
    note(shard, shard.inodes[inode.value], offset, bytes);
}

void PageCacheMap::note_written(InodeNumber inode, uint64_t offset, uint64_t bytes)
{
    Shard& shard = shard_of(inode);
    MutexLock lock(shard.mutex);
    const auto at = shard.inodes.find(inode.value);
    if (at != shard.inodes.end() && at->second.direct_open_count > 0)
        note(shard, at->second, offset, bytes);
}

void PageCacheMap::note(Shard& shard, Cached& cached, uint64_t offset, uint64_t bytes)
{
    cached.version = ++shard.version;
    const Pages pages = whole_pages(offset, bytes);
    shard.memory -= cached.pages.memory();
    cached.pages.add(pages.begin, pages.end);
    if (shard.memory + cached.pages.memory() > kMemoryMax / kShardCount)
        cached.pages.become_all();
    shard.memory += cached.pages.memory();
}

void PageCacheMap::erase(Shard& shard, Inodes::iterator at)
{
    shard.memory -= at->second.pages.memory();
    shard.inodes.erase(at);
}

bool PageCacheMap::begin_drop(InodeNumber inode, uint64_t offset, uint64_t bytes)
{
    Shard& shard = shard_of(inode);
    MutexLock lock(shard.mutex);
    const auto at = shard.inodes.find(inode.value);
    if (at == shard.inodes.end())
        return false;
    Cached& cached = at->second;
    shard.memory -= cached.pages.memory();
    const bool drops = cached.take(offset, bytes) || cached.drop_count > 0;
    if (drops)
        cached.start_drop(offset, bytes);
    shard.memory += cached.pages.memory();
    return drops;
}

void PageCacheMap::begin_any_drop(InodeNumber inode, uint64_t offset, uint64_t bytes)
{
    Shard& shard = shard_of(inode);
    MutexLock lock(shard.mutex);
    Cached& cached = shard.inodes[inode.value];
    shard.memory -= cached.pages.memory();
    cached.take(offset, bytes);
    cached.start_drop(offset, bytes);
    shard.memory += cached.pages.memory();
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
    if (at != shard.inodes.end() && at->second.version == version && !at->second.in_use())
        erase(shard, at);
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

size_t PageCacheMap::memory() const
{
    size_t total = 0;
    for (const Shard& shard : shards_) {
        MutexLock lock(shard.mutex);
        total += shard.memory;
    }
    return total;
}

std::vector<PageRange> PageCacheMap::ranges(InodeNumber inode) const
{
    const Shard& shard = shard_of(inode);
    MutexLock lock(shard.mutex);
    const auto at = shard.inodes.find(inode.value);
    std::vector<PageRange> ranges;
    if (at != shard.inodes.end())
        for (const auto& [begin, end] : at->second.pages.ranges())
            ranges.push_back({begin * kBlockBytes, end * kBlockBytes});
    return ranges;
}

}  // namespace cowraid
