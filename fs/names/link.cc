// SPDX-License-Identifier: MIT
// One more name for a file.
#include <utility>

#include "format/items.h"
#include "fs/names/inode_use.h"
#include "fs/names/names.h"

namespace cowraid {

namespace {

// Requires both inodes locked. Nothing is changed on failure.
Status add_link(Store& store, Operation& op, Inode& directory, std::string_view name, Inode& inode)
{
    directory.mutex.assert_held();
    inode.mutex.assert_held();
    if (directory.removed || directory.attributes.link_count == 0)
        return Err::kNotFound;
    if (inode.removed || (inode.attributes.link_count == 0 && !inode.temporary))
        return Err::kNotFound;
    if (inode.attributes.link_count >= kMaxLinks)
        return Err::kTooManyLinks;
    CW_ASSIGN(const DirentSlot slot, find_name(store, directory.number, name));
    if (slot.found)
        return Err::kExists;
    if (directory.attributes.immutable() || inode.attributes.fixed())
        return Err::kNotPermitted;
    if (slot.free_cursor == 0)
        return Err::kNoSpace;
    const timespec now = current_time();
    put_name(op, directory, slot.free_cursor, name, inode);
    if (std::exchange(inode.temporary, false) && (inode.attributes.flags & kInodeCut) == 0)
        op.erase(orphan_key(inode.number));
    ++inode.attributes.link_count;
    inode.attributes.changed = now;
    store_inode(op, inode);
    add_name_weight(directory, name);
    touch_directory(directory, now);
    store_inode(op, directory);
    return {};
}

// Linking needs a file; looks without locks, so that the nodes which the change will need are in memory.
Status check_link(Store& store, Inode& inode, InodeNumber directory, std::string_view name)
{
    {
        MutexLock lock(inode.mutex);
        if (inode.attributes.is_directory())
            return Err::kNotPermitted;
    }
    CW_ASSIGN(const DirentSlot slot, find_name(store, directory, name));
    return slot.found ? Err::kExists : Err::kOk;
}

}  // namespace

Result<Attributes> Names::link(InodeNumber inode, InodeNumber new_parent, std::string_view new_name)
{
    CW_TRY(check_name(new_name));
    if (is_dot_name(new_name))
        return Err::kExists;
    CW_ASSIGN(const InodeUse file, use_inode(*this, inode));
    CW_ASSIGN(const InodeUse directory, use_directory(*this, new_parent));
    CW_TRY(check_link(store, *file, new_parent, new_name));
    LookupReference reference(*this, file);
    Operation op(store);
    CW_TRY(op.begin(Operation::Kind::kGrow, 5));
    const InodeLocks locks({directory.get(), file.get()});
    file->mutex.assert_held();
    CW_TRY(add_link(store, op, *directory, new_name, *file));
    reference.keep();
    return attributes_of(*file);
}

}  // namespace cowraid
