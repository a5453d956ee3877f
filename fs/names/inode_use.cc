// SPDX-License-Identifier: MIT
#include "fs/names/inode_use.h"

#include <sys/stat.h>

#include <algorithm>

#include "format/items.h"
#include "fs/names/names.h"
#include "fs/names/removal.h"

namespace cowraid {

InodeUse::~InodeUse()
{
    if (!inode_)
        return;
    const InodeNumber number = inode_->number;
    inode_.reset();
    names_->files.inodes.prune(number);
}

LookupReference::LookupReference(Names& names, const InodeUse& inode) : names_(&names), inode_(inode->number)
{
    names.files.inodes.remember(inode.ref());
}

LookupReference::~LookupReference()
{
    if (names_ != nullptr)
        names_->forget(inode_, 1);
}

Result<InodeUse> use_inode(Names& names, InodeNumber number)
{
    Result<Ref<Inode>> inode = names.files.inodes.get(number);
    if (!inode.ok())
        return inode.err() == Err::kNotFound ? Err::kStale : inode.err();
    return InodeUse(names, inode.take());
}

Result<InodeUse> use_directory(Names& names, InodeNumber number)
{
    CW_ASSIGN(InodeUse directory, use_inode(names, number));
    MutexLock lock(directory->mutex);
    if (!directory->attributes.is_directory())
        return Err::kNotDirectory;
    if (directory->attributes.link_count == 0)
        return Err::kNotFound;
    return directory;
}

Result<InodeUse> use_entry(Names& names, InodeNumber directory, const Dirent& entry)
{
    if (entry.inode == directory)
        return Err::kCorrupt;
    CW_ASSIGN(Ref<Inode> ref, names.files.inodes.get(entry.inode));
    InodeUse inode(names, std::move(ref));
    bool same_type = false;
    {
        MutexLock lock(inode->mutex);
        same_type = (inode->attributes.mode & S_IFMT) == entry.mode_type;
    }
    if (!same_type)
        return Err::kCorrupt;
    return inode;
}

Result<DirentSlot> find_name(Store& store, InodeNumber directory, std::string_view name)
{
    CW_TRY(check_name(name));
    return find_dirent(store.items, store.volume.identity().name_hash_seed, directory, name);
}

Result<NamedInode> resolve_name(Names& names, InodeNumber directory, std::string_view name)
{
    // A removed inode whose entry is still there the second time was never removed with it: damage.
    InodeNumber missing;
    while (true) {
        CW_ASSIGN(DirentSlot slot, find_name(names.store, directory, name));
        if (!slot.found)
            return Err::kNotFound;
        Result<InodeUse> inode = use_entry(names, directory, slot.entry);
        if (inode.ok())
            return NamedInode{std::move(slot.entry), inode.take()};
        if (inode.err() != Err::kNotFound)
            return inode.err();
        if (slot.entry.inode == missing)
            return Err::kCorrupt;
        missing = slot.entry.inode;
    }
}

Attributes attributes_of(const Inode& inode)
{
    const InodeAttributes& from = inode.attributes;
    Attributes out;
    out.inode = inode.number;
    out.size_bytes = from.size_bytes;
    // Data in memory counts as stored, or programs that copy sparse files would take it for a hole. What
    // overwrites stored blocks would count twice, so the sum ends at what a file of this size can hold.
    uint64_t blocks = from.data_blocks;
    const uint64_t waiting = inode.dirty.block_count() + inode.flushing.block_count();
    const bool counted_twice = from.data_blocks > 0 || (!inode.dirty.empty() && !inode.flushing.empty());
    const bool shrinks = inode.compresses || (from.flags & kInodeCompress) != 0;
    const bool is_cut = (from.flags & kInodeCut) != 0;
    out.block_count_estimated = is_cut || (waiting > 0 && (counted_twice || shrinks));
    if (waiting > 0)
        blocks = std::max(blocks, std::min(blocks + waiting, divide_up(from.size_bytes, kBlockBytes)));
    out.block_count_512 = blocks * (kBlockBytes / 512);
    out.rdev = from.rdev;
    out.generation = from.generation;
    out.mode = from.mode;
    out.uid = from.uid;
    out.gid = from.gid;
    out.link_count = from.link_count;
    out.accessed = from.accessed;
    out.modified = from.modified;
    out.changed = from.changed;
    out.created = from.created;
    return out;
}

uint64_t name_weight(std::string_view name)
{
    return 2 * name.size();
}

void add_name_weight(Inode& directory, std::string_view name)
{
    // A damaged size must not grow beyond what can be stored.
    constexpr uint64_t kMax = INT64_MAX;
    uint64_t& size = directory.attributes.size_bytes;
    size += std::min(kMax - std::min(kMax, size), name_weight(name));
}

void remove_name_weight(Inode& directory, std::string_view name)
{
    uint64_t& size = directory.attributes.size_bytes;
    size -= std::min(size, name_weight(name));
}

void touch_directory(Inode& directory, const timespec& now)
{
    directory.attributes.modified = now;
    directory.attributes.changed = now;
}

void drop_subdirectory(Inode& directory)
{
    // A damaged count must not wrap.
    if (directory.attributes.link_count > 2)
        --directory.attributes.link_count;
}

void put_name(Operation& op, Inode& directory, uint64_t cursor, std::string_view name, Inode& inode)
{
    inode.mutex.assert_held();
    const uint64_t sequence = inode.attributes.next_link_sequence++;
    const std::string text(name);
    op.put(dirent_key(directory.number, cursor),
           encode_dirent({cursor, inode.number, sequence, inode.attributes.mode & S_IFMT, text}));
    op.put(link_key(inode.number, sequence), encode_link({directory.number, cursor, text}));
}

bool drop_link(Operation& op, Inode& inode, uint64_t link_sequence, const timespec& now)
{
    InodeAttributes& attributes = inode.attributes;
    op.erase(link_key(inode.number, link_sequence));
    // A damaged count must not wrap.
    const bool last = attributes.is_directory() || attributes.link_count <= 1;
    attributes.link_count = last ? 0 : attributes.link_count - 1;
    attributes.changed = now;
    if (last)
        op.put(orphan_key(inode.number), {});
    store_inode(op, inode);
    return last;
}

void remove_if_forgotten(Names& names, InodeNumber inode)
{
    if (!names.files.inodes.mark_unlinked(inode))
        queue_removal(names, inode);
}

}  // namespace cowraid
