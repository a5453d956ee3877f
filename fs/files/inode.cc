// SPDX-License-Identifier: MIT
#include "fs/files/inode.h"

#include <algorithm>

#include "format/items.h"

namespace cowraid {

InodeTable::Shard& InodeTable::shard_of(InodeNumber number) const
{
    return shards_[number.value % kShardCount];
}

Result<Ref<Inode>> InodeTable::get(InodeNumber number)
{
    Shard& shard = shard_of(number);
    Ref<Inode> inode;
    {
        MutexLock lock(shard.mutex);
        Ref<Inode>& slot = shard.inodes[number.value];
        if (!slot)
            slot = make_ref<Inode>(number);
        inode = slot;
    }
    Status status;
    {
        MutexLock lock(inode->mutex);
        if (inode->removed)
            status = Err::kNotFound;
        else if (!inode->loaded)
            status = load(*inode);
    }
    if (!status.ok()) {
        inode.reset();
        prune(number);
        return status;
    }
    return inode;
}

Status InodeTable::load(Inode& inode)
{
    inode.mutex.assert_held();
    ItemBytes payload;
    CW_TRY(store_.get(inode_key(inode.number), payload));
    CW_ASSIGN(inode.attributes, decode_inode(payload));
    inode.data_change = newest_change_;
    inode.loaded = true;
    return {};
}

Ref<Inode> InodeTable::create(InodeNumber number, const InodeAttributes& attributes)
{
    Shard& shard = shard_of(number);
    Ref<Inode> inode;
    {
        // Whoever asked for the number before it existed holds the same object.
        MutexLock lock(shard.mutex);
        Ref<Inode>& slot = shard.inodes[number.value];
        if (!slot)
            slot = make_ref<Inode>(number);
        inode = slot;
    }
    MutexLock lock(inode->mutex);
    inode->attributes = attributes;
    inode->loaded = true;
    return inode;
}

void InodeTable::remember(const Ref<Inode>& inode, uint64_t count)
{
    Shard& shard = shard_of(inode->number);
    MutexLock lock(shard.mutex);
    inode->lookup_count += count;
}

bool InodeTable::forget(InodeNumber number, uint64_t count)
{
    Shard& shard = shard_of(number);
    MutexLock lock(shard.mutex);
    const auto at = shard.inodes.find(number.value);
    if (at == shard.inodes.end())
        return false;
    at->second->lookup_count -= std::min(count, at->second->lookup_count);
    return at->second->lookup_count == 0;
}

void InodeTable::prune(InodeNumber number)
{
    Shard& shard = shard_of(number);
    MutexLock lock(shard.mutex);
    const auto at = shard.inodes.find(number.value);
    if (at != shard.inodes.end() && at->second->lookup_count == 0 && at->second->reference_count() == 1)
        shard.inodes.erase(at);
}

bool InodeTable::remembered(InodeNumber number) const
{
    Shard& shard = shard_of(number);
    MutexLock lock(shard.mutex);
    const auto at = shard.inodes.find(number.value);
    return at != shard.inodes.end() && at->second->lookup_count > 0;
}

size_t InodeTable::size() const
{
    size_t total = 0;
    for (const Shard& shard : shards_) {
        MutexLock lock(shard.mutex);
        total += shard.inodes.size();
    }
    return total;
}

InodeLocks::InodeLocks(std::initializer_list<Inode*> inodes)
{
    for (Inode* inode : inodes)
        if (inode != nullptr &&
            std::find(locked_.begin(), locked_.begin() + count_, inode) == locked_.begin() + count_)
            locked_[count_++] = inode;
    std::sort(locked_.begin(), locked_.begin() + count_,
              [](const Inode* a, const Inode* b) { return a->number < b->number; });
    for (size_t i = 0; i < count_; ++i) {
        if (i == 0)
            locked_[i]->mutex.lock();
        else
            locked_[i]->mutex.lock_nested();
    }
}

InodeLocks::~InodeLocks()
{
    for (size_t i = count_; i > 0; --i)
        locked_[i - 1]->mutex.unlock();
}

void store_inode(Operation& operation, Inode& inode, Changed changed)
{
    inode.mutex.assert_held();
    operation.put(inode_key(inode.number), encode_inode(inode.attributes));
    if (changed == Changed::kContent)
        inode.data_change = operation.change();
}

}  // namespace cowraid
