// SPDX-License-Identifier: MIT
// New inodes: files, directories, symbolic links, devices.
#include <sys/stat.h>

#include <utility>

#include "format/items.h"
#include "fs/names/inode_use.h"
#include "fs/names/names.h"
#include "fs/names/xattr.h"

namespace cowraid {

namespace {

Status check_request(std::string_view name, uint32_t mode, std::string_view symlink_target)
{
    CW_TRY(check_name(name));
    if (is_dot_name(name))
        return Err::kExists;
    switch (mode & S_IFMT) {
    case S_IFREG:
    case S_IFDIR:
    case S_IFIFO:
    case S_IFSOCK:
    case S_IFCHR:
    case S_IFBLK:
        return symlink_target.empty() ? Err::kOk : Err::kInvalid;
    case S_IFLNK:
        if (symlink_target.empty() || symlink_target.find('\0') != std::string_view::npos)
            return Err::kInvalid;
        return symlink_target.size() > kMaxSymlinkBytes ? Err::kNameTooLong : Err::kOk;
    default:
        return Err::kInvalid;
    }
}

// Looks without locks, so that the tree nodes which the change will need are in memory.
Status expect_free(Store& store, InodeNumber directory, std::string_view name)
{
    CW_ASSIGN(const DirentSlot slot, find_name(store, directory, name));
    return slot.found ? Err::kExists : Err::kOk;
}

// Entry, link, two inodes, and a target; a long one counts as several.
uint32_t item_count(std::string_view symlink_target)
{
    return 5 + static_cast<uint32_t>(symlink_target.size() / 256);
}

// Never beyond the limit, because the next number is part of every commit.
Result<InodeNumber> next_inode_number(Names& names)
{
    uint64_t number = names.next_inode.load(std::memory_order_relaxed);
    do {
        if (number >= kMaxInode)
            return Err::kNoSpace;
    } while (!names.next_inode.compare_exchange_weak(number, number + 1, std::memory_order_relaxed));
    return InodeNumber{number};
}

InodeAttributes new_attributes(uint32_t mode, uint64_t rdev, const Caller& caller)
{
    InodeAttributes attributes;
    attributes.mode = mode & (S_IFMT | 07777);
    attributes.uid = caller.uid;
    attributes.gid = caller.gid;
    attributes.rdev = S_ISCHR(mode) || S_ISBLK(mode) ? rdev : 0;
    attributes.link_count = S_ISDIR(mode) ? 2 : 1;
    attributes.created = current_time();
    attributes.accessed = attributes.modified = attributes.changed = attributes.created;
    return attributes;
}

struct NewNode {
    InodeNumber parent;
    std::string_view name;  // none: it gets one later, or goes when nobody refers to it
    uint32_t mode = 0;
    uint64_t rdev = 0;
    std::string_view symlink_target;
};

// The place of the name, and whether the directory takes it. Requires directory.mutex.
Result<DirentSlot> find_place(Store& store, const Inode& directory, const NewNode& node)
    CW_REQUIRES(directory.mutex)
{
    if (directory.removed || directory.attributes.link_count == 0)
        return Err::kNotFound;
    if (node.name.empty())
        return directory.attributes.immutable() ? Result<DirentSlot>(Err::kNotPermitted) : DirentSlot();
    CW_ASSIGN(DirentSlot slot, find_name(store, directory.number, node.name));
    if (slot.found)
        return Err::kExists;
    if (directory.attributes.immutable())
        return Err::kNotPermitted;
    if (slot.free_cursor == 0)
        return Err::kNoSpace;
    if (S_ISDIR(node.mode) && directory.attributes.link_count == UINT32_MAX)
        return Err::kTooManyLinks;
    return slot;
}

void put_first_name(Operation& op, Inode& directory, uint64_t cursor, std::string_view name, Inode& child)
    CW_REQUIRES(directory.mutex, child.mutex)
{
    if (child.attributes.is_directory()) {
        ++directory.attributes.link_count;
        child.attributes.parent = directory.number.value;
    }
    put_name(op, directory, cursor, name, child);
    add_name_weight(directory, name);
    touch_directory(directory, child.attributes.created);
    store_inode(op, directory);
}

// Requires both inodes locked. Nothing is changed on failure. `inherits`: the directory had a default list.
Status add_child(Store& store, Operation& op, Inode& directory, const NewNode& node, Inode& child,
                 uint32_t umask, bool inherits)
{
    directory.mutex.assert_held();
    child.mutex.assert_held();
    CW_ASSIGN(const DirentSlot slot, find_place(store, directory, node));
    Acl inherited;
    if (inherits) {
        CW_ASSIGN(inherited, find_acl(store, directory, kDefaultAclName));
    }
    inherit_group(directory.attributes, child.attributes);
    constexpr uint64_t kInherited = kInodeNoDump | kInodeNoAccessTime | kInodeCompress | kInodeNoCompress;
    child.attributes.flags = directory.attributes.flags & kInherited;
    inherit_rights(store, op, child, std::move(inherited), umask);
    child.attributes.size_bytes = node.symlink_target.size();
    if (node.name.empty()) {
        child.attributes.link_count = 0;
        child.temporary = true;
        op.put(orphan_key(child.number), {});
    } else {
        put_first_name(op, directory, slot.free_cursor, node.name, child);
    }
    if (!node.symlink_target.empty())
        op.put(symlink_key(child.number), std::as_bytes(std::span(node.symlink_target)));
    store_inode(op, child);
    return {};
}

Result<Attributes> add_node(Names& names, const NewNode& node, const Caller& caller)
{
    CW_ASSIGN(const InodeUse directory, use_directory(names, node.parent));
    if (!node.name.empty())
        CW_TRY(expect_free(names.store, node.parent, node.name));
    // One that somebody sets meanwhile comes later.
    const Result<bool> inherits =
        S_ISLNK(node.mode) ? false : has_xattr(names.store, *directory, kDefaultAclName);
    CW_TRY(inherits.status());
    Operation op(names.store);
    CW_TRY(
        op.begin(Operation::Kind::kGrow, item_count(node.symlink_target) + (*inherits ? 2 * kAclItems : 0)));
    // Remembered before anything names it, so that whoever finds the name finds this object and no unlink can
    // delete it under the caller.
    CW_ASSIGN(const InodeUse child, begin_inode(names, node.mode, node.rdev, caller));
    LookupReference reference(names, child);
    // Before it can leave memory. Who gives the last reference back deletes it, unless it has a name by then.
    if (node.name.empty())
        CW_ASSERT(names.files.inodes.mark_unlinked(child->number));
    const InodeLocks locks({directory.get(), child.get()});
    child->mutex.assert_held();
    const Status status = add_child(names.store, op, *directory, node, *child, caller.umask, *inherits);
    if (!status.ok()) {
        child->removed = true;
        return status.err();
    }
    names.inode_count.fetch_add(1, std::memory_order_relaxed);
    reference.keep();
    return attributes_of(*child);
}

}  // namespace

Result<InodeUse> begin_inode(Names& names, uint32_t mode, uint64_t rdev, const Caller& caller)
{
    CW_ASSIGN(const InodeNumber number, next_inode_number(names));
    InodeAttributes attributes = new_attributes(mode, rdev, caller);
    attributes.generation = names.store.inode_generation;
    return InodeUse(names, names.files.inodes.create(number, attributes));
}

void inherit_group(const InodeAttributes& directory, InodeAttributes& child)
{
    if ((directory.mode & S_ISGID) == 0)
        return;
    child.gid = directory.gid;
    if (child.is_directory())
        child.mode |= S_ISGID;
}

Result<Attributes> Names::make_node(InodeNumber parent, std::string_view name, uint32_t mode, uint64_t rdev,
                                    const Caller& caller)
{
    CW_TRY(check_request(name, mode, {}));
    return add_node(*this, {parent, name, mode, rdev, {}}, caller);
}

Result<Attributes> Names::make_temporary(InodeNumber directory, uint32_t mode, const Caller& caller)
{
    return add_node(*this, {directory, {}, S_IFREG | (mode & 07777), 0, {}}, caller);
}

Result<Attributes> Names::make_symlink(InodeNumber parent, std::string_view name, std::string_view target,
                                       const Caller& caller)
{
    CW_TRY(check_request(name, S_IFLNK, target));
    return add_node(*this, {parent, name, S_IFLNK | 0777, 0, target}, caller);
}

}  // namespace cowraid
