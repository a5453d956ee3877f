// SPDX-License-Identifier: MIT
// Names to inodes, and the references that lookups hand out.
#include "format/items.h"
#include "fs/names/inode_use.h"
#include "fs/names/names.h"
#include "fs/names/removal.h"

namespace cowraid {

namespace {

// The parent of a directory; the root is its own.
InodeNumber parent_of(Inode& directory)
{
    if (directory.number.value == kRootInode)
        return directory.number;
    MutexLock lock(directory.mutex);
    return {directory.attributes.parent};
}

Result<InodeUse> resolve(Names& names, InodeUse& directory, std::string_view name)
{
    if (name == ".")
        return use_inode(names, directory->number);
    if (name == "..")
        return use_inode(names, parent_of(*directory));
    CW_ASSIGN(NamedInode named, resolve_name(names, directory->number, name));
    return std::move(named.inode);
}

// The attributes of an inode that still has a name.
Result<Attributes> named_attributes(Inode& inode)
{
    MutexLock lock(inode.mutex);
    if (inode.removed || inode.attributes.link_count == 0)
        return Err::kNotFound;
    return attributes_of(inode);
}

}  // namespace

Result<Attributes> Names::lookup(InodeNumber parent, std::string_view name)
{
    CW_TRY(check_name(name));
    CW_ASSIGN(InodeUse directory, name == "." ? use_inode(*this, parent) : use_directory(*this, parent));
    InodeNumber unlinked;
    while (true) {
        CW_ASSIGN(InodeUse inode, resolve(*this, directory, name));
        // Remembered first, looked at then: an inode that still has a name now will not be deleted under
        // the caller.
        LookupReference reference(*this, inode);
        Result<Attributes> attributes = named_attributes(*inode);
        if (attributes.ok())
            reference.keep();
        if (attributes.ok() || attributes.err() != Err::kNotFound || is_dot_name(name))
            return attributes;
        // Unlinked or replaced during the lookup; an entry that still names it then is damage.
        if (inode->number == unlinked)
            return Err::kCorrupt;
        unlinked = inode->number;
    }
}

bool Names::forget(InodeNumber inode, uint64_t count)
{
    const InodeTable::Forgotten forgotten = files.inodes.forget(inode, count);
    if (forgotten == InodeTable::Forgotten::kNo)
        return false;
    files.inodes.prune(inode);
    if (forgotten == InodeTable::Forgotten::kUnlinked)
        queue_removal(*this, inode);
    return true;
}

}  // namespace cowraid
