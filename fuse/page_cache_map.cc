// SPDX-License-Identifier: MIT
#include "fuse/page_cache_map.h"

#include <algorithm>

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

PageCacheMap::Inodes::iterator PageCacheMap::list(Shard& shard, InodeNumber inode)
{
    const auto [at, added] = shard.inodes.try_emplace(inode.value);
    if (added) {
        shard.memory += kEntryBytes;
        if (inode.value <= shard.unknown_last)
            at->second.pages.become_all();
    }
    return at;
}

void PageCacheMap::become_all(Shard& shard, Inodes::iterator at)
{
    shard.memory -= at->second.pages.memory();
    at->second.pages.become_all();
}

void PageCacheMap::erase(Shard& shard, Inodes::iterator at)
{
    shard.memory -= kEntryBytes + at->second.pages.memory();
    shard.inodes.erase(at);
}

void PageCacheMap::lose(Shard& shard, Inodes::iterator at)
{
    if (!at->second.pages.empty())
        shard.unknown_last = std::max(shard.unknown_last, at->first);
    erase(shard, at);
}

void PageCacheMap::settle(Shard& shard, Inodes::iterator changed)
{
    Cached& cached = changed->second;
    shard.used_count += (cached.in_use() ? 1 : 0) - (cached.counted_used ? 1 : 0);
    cached.counted_used = cached.in_use();
    // One large file does not cost what is known of all others.
    if (shard.memory > share_ && cached.pages.memory() > share_ / 2)
        become_all(shard, changed);
    const size_t kept_count = shard.used_count + (cached.in_use() ? 0 : 1);
    if (shard.memory > share_ && shard.inodes.size() > kept_count)
        for (auto at = shard.inodes.begin(); at != shard.inodes.end();) {
            const auto other = at++;
            if (other != changed && !other->second.in_use())
                lose(shard, other);
        }
    if (shard.memory > share_)
        become_all(shard, changed);
    const bool as_unlisted =
        changed->first <= shard.unknown_last ? cached.pages.has_all() : cached.pages.empty();
    if (!cached.in_use() && (as_unlisted || shard.memory > share_))
        lose(shard, changed);
}

void PageCacheMap::begin_direct(InodeNumber inode)
{
    begin_open(inode, &Cached::direct_open_count);
}

void PageCacheMap::begin_mapped(InodeNumber inode)
{
    begin_open(inode, &Cached::mapped_open_count);
}

void PageCacheMap::end_direct(InodeNumber inode)
{
    end_open(inode, &Cached::direct_open_count);
}

void PageCacheMap::end_mapped(InodeNumber inode)
{
    end_open(inode, &Cached::mapped_open_count);
}

void PageCacheMap::begin_open(InodeNumber inode, uint32_t Cached::*count)
{
    Shard& shard = shard_of(inode);
    MutexLock lock(shard.mutex);
    const auto at = list(shard, inode);
    ++(at->second.*count);
    settle(shard, at);
}

void PageCacheMap::end_open(InodeNumber inode, uint32_t Cached::*count)
{
    Shard& shard = shard_of(inode);
    MutexLock lock(shard.mutex);
    const auto at = shard.inodes.find(inode.value);
    CW_ASSERT(at != shard.inodes.end() && at->second.*count > 0);
    --(at->second.*count);
    settle(shard, at);
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
    note(shard, list(shard, inode), offset, bytes);
}

void PageCacheMap::note_written(InodeNumber inode, uint64_t offset, uint64_t bytes)
{
    Shard& shard = shard_of(inode);
    MutexLock lock(shard.mutex);
    const auto at = shard.inodes.find(inode.value);
    if (at != shard.inodes.end() && at->second.direct_open_count > 0)
        note(shard, at, offset, bytes);
}

void PageCacheMap::note(Shard& shard, Inodes::iterator at, uint64_t offset, uint64_t bytes)
{
    const Pages range = whole_pages(offset, bytes);
    PageSet& pages = at->second.pages;
    at->second.version = ++shard.version;
    shard.memory -= pages.memory();
    pages.add(range.begin, range.end);
    shard.memory += pages.memory();
    settle(shard, at);
}

PageCacheMap::Drop PageCacheMap::drop_of(InodeNumber inode, uint64_t offset, uint64_t bytes)
{
    const Pages range = whole_pages(offset, bytes);
    return {.inode = inode.value, .begin = range.begin, .end = range.end};
}

bool PageCacheMap::is_dropped(const Shard& shard, const Drop& drop)
{
    return std::any_of(shard.drops.begin(), shard.drops.end(), [&](const Drop& other) {
        return other.inode == drop.inode && other.begin < drop.end && drop.begin < other.end;
    });
}

bool PageCacheMap::begin_drop(InodeNumber inode, uint64_t offset, uint64_t bytes)
{
    return begin_drop(inode, offset, bytes, false);
}

void PageCacheMap::begin_any_drop(InodeNumber inode, uint64_t offset, uint64_t bytes)
{
    begin_drop(inode, offset, bytes, true);
}

bool PageCacheMap::begin_drop(InodeNumber inode, uint64_t offset, uint64_t bytes, bool any)
{
    Shard& shard = shard_of(inode);
    MutexLock lock(shard.mutex);
    if (!any && inode.value > shard.unknown_last && !shard.inodes.contains(inode.value))
        return false;
    const auto at = list(shard, inode);
    Cached& cached = at->second;
    shard.memory -= cached.pages.memory();
    const Drop drop = drop_of(inode, offset, bytes);
    const bool drops =
        cached.take(offset, bytes) || any || (cached.drop_count > 0 && is_dropped(shard, drop));
    if (drops) {
        cached.start_drop(offset, bytes);
        shard.drops.push_back(drop);
    }
    shard.memory += cached.pages.memory();
    settle(shard, at);
    return drops;
}

PageCacheMap::Inodes::iterator PageCacheMap::remove(Shard& shard, const Drop& drop)
{
    const auto ended = std::find(shard.drops.begin(), shard.drops.end(), drop);
    CW_ASSERT(ended != shard.drops.end());
    *ended = shard.drops.back();
    shard.drops.pop_back();
    const auto at = shard.inodes.find(drop.inode);
    CW_ASSERT(at != shard.inodes.end() && at->second.drop_count > 0);
    --at->second.drop_count;
    return at;
}

void PageCacheMap::end_drop(InodeNumber inode, uint64_t offset, uint64_t bytes)
{
    Shard& shard = shard_of(inode);
    MutexLock lock(shard.mutex);
    settle(shard, remove(shard, drop_of(inode, offset, bytes)));
}

void PageCacheMap::give_up_drop(InodeNumber inode, uint64_t offset, uint64_t bytes)
{
    Shard& shard = shard_of(inode);
    MutexLock lock(shard.mutex);
    const auto at = remove(shard, drop_of(inode, offset, bytes));
    become_all(shard, at);
    settle(shard, at);
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
