// SPDX-License-Identifier: MIT
#include "fs/files/inode.h"

#include <algorithm>
#include <utility>

#include "format/items.h"

namespace cowraid {

InodeTable::Shard& InodeTable::shard_of(InodeNumber number) const
{
    return shards_[number.value % kShardCount];
}

Ref<Inode> InodeTable::object(InodeNumber number)
{
    Shard& shard = shard_of(number);
    MutexLock lock(shard.mutex);
    Ref<Inode>& slot = shard.inodes[number.value];
    if (!slot)
        slot = make_ref<Inode>(number);
    slot->asked_for = true;
    return slot;
}

Result<Ref<Inode>> InodeTable::get(InodeNumber number)
{
    Ref<Inode> inode = object(number);
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
    // Whoever asked for the number before it existed holds the same object.
    Ref<Inode> inode = object(number);
    MutexLock lock(inode->mutex);
    inode->attributes = attributes;
    inode->absent_xattrs = kAllXattrKinds;
    inode->loaded = true;
    return inode;
}

void InodeTable::remember(const Ref<Inode>& inode, uint64_t count)
{
    Shard& shard = shard_of(inode->number);
    MutexLock lock(shard.mutex);
    shard.lookups[inode->number.value].count += count;
}

InodeTable::Forgotten InodeTable::forget(InodeNumber number, uint64_t count)
{
    Shard& shard = shard_of(number);
    MutexLock lock(shard.mutex);
    const auto at = shard.lookups.find(number.value);
    if (at == shard.lookups.end())
        return Forgotten::kNo;
    Lookups& lookups = at->second;
    lookups.count -= std::min(count, lookups.count);
    if (lookups.count > 0)
        return Forgotten::kNo;
    const bool unlinked = lookups.unlinked;
    shard.lookups.erase(at);
    return unlinked ? Forgotten::kUnlinked : Forgotten::kLast;
}

bool InodeTable::mark_unlinked(InodeNumber number)
{
    Shard& shard = shard_of(number);
    MutexLock lock(shard.mutex);
    const auto at = shard.lookups.find(number.value);
    if (at == shard.lookups.end())
        return false;
    at->second.unlinked = true;
    return true;
}

// Of inodes without names more is known than their items say.
bool InodeTable::may_go(const Shard& shard, const Inode& inode)
{
    const auto lookups = shard.lookups.find(inode.number.value);
    return inode.reference_count() == 1 && (lookups == shard.lookups.end() || !lookups->second.unlinked);
}

void InodeTable::prune(InodeNumber number)
{
    Shard& shard = shard_of(number);
    MutexLock lock(shard.mutex);
    const auto at = shard.inodes.find(number.value);
    if (at != shard.inodes.end() && at->second->reference_count() == 1 &&
        shard.lookups.count(number.value) == 0)
        shard.inodes.erase(at);
    else if (shard.inodes.size() > shard_inodes_max_)
        sweep(shard);
}

void InodeTable::sweep(Shard& shard) const
{
    // More than come in at a time, so that a shard becomes small again.
    constexpr size_t kBuckets = 8;
    std::vector<uint64_t> idle;
    for (size_t i = 0; i < kBuckets; ++i) {
        shard.hand = (shard.hand + 1) % shard.inodes.bucket_count();
        for (auto at = shard.inodes.begin(shard.hand); at != shard.inodes.end(shard.hand); ++at)
            if (!std::exchange(at->second->asked_for, false) && may_go(shard, *at->second))
                idle.push_back(at->first);
    }
    for (const uint64_t number : idle)
        shard.inodes.erase(number);
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
