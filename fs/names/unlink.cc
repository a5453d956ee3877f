// SPDX-License-Identifier: MIT
// Names go: unlink and rmdir. What has no name left becomes an orphan, and is deleted in the background when
// nobody refers to it any more.
#include <sys/stat.h>

#include "fs/names/inode_use.h"
#include "fs/names/names.h"

namespace cowraid {

namespace {

enum class UnlinkOutcome : uint8_t { kDone, kLastName, kChanged };

// Requires both inodes locked, as resolved. kChanged: the name means something else by now.
Result<UnlinkOutcome> take_name(Store& store, Operation& op, Inode& directory, const Dirent& entry,
                                Inode& inode)
{
    directory.mutex.assert_held();
    inode.mutex.assert_held();
    if (directory.removed || directory.attributes.link_count == 0)
        return Err::kNotFound;
    CW_ASSIGN(const DirentSlot slot, find_name(store, directory.number, entry.name));
    if (!slot.found)
        return Err::kNotFound;
    if (slot.entry.inode != inode.number || inode.removed)
        return UnlinkOutcome::kChanged;
    if (directory.attributes.fixed() || inode.attributes.fixed())
        return Err::kNotPermitted;
    if (inode.attributes.is_directory()) {
        CW_TRY(expect_empty(store, inode.number));
        drop_subdirectory(directory);
    }
    const timespec now = current_time();
    op.erase(dirent_key(directory.number, slot.entry.cursor));
    const bool last = drop_link(op, inode, slot.entry.link_sequence, now);
    remove_name_weight(directory, entry.name);
    touch_directory(directory, now);
    store_inode(op, directory);
    return last ? UnlinkOutcome::kLastName : UnlinkOutcome::kDone;
}

// By their flags. No locks held: final only when they are.
Status check_flags(const InodeUse& directory, const InodeUse& inode)
{
    for (const InodeUse* use : {&directory, &inode}) {
        MutexLock lock((*use)->mutex);
        if ((*use)->attributes.fixed())
            return Err::kNotPermitted;
    }
    return {};
}

// Of the inode that the name means now. Looks without locks, so that the nodes which the change will need
// are in memory.
Status check_type(Store& store, const Dirent& entry, uint32_t wanted_type)
{
    const bool directory = S_ISDIR(entry.mode_type);
    if (directory && wanted_type != S_IFDIR)
        return Err::kIsDirectory;
    if (!directory && wanted_type == S_IFDIR)
        return Err::kNotDirectory;
    return directory ? expect_empty(store, entry.inode) : Status();
}

// `wanted_type`: S_IFDIR, or S_IFREG for anything that is not a directory.
Status remove_name(Names& names, InodeNumber parent, std::string_view name, uint32_t wanted_type)
{
    CW_ASSIGN(const InodeUse directory, use_directory(names, parent));
    while (true) {
        CW_ASSIGN(const NamedInode named, resolve_name(names, parent, name));
        CW_TRY(check_flags(directory, named.inode));
        CW_TRY(check_type(names.store, named.entry, wanted_type));
        Operation op(names.store);
        CW_TRY(op.begin(Operation::Kind::kShrink, 5));
        UnlinkOutcome outcome;
        {
            const InodeLocks locks({directory.get(), named.inode.get()});
            CW_ASSIGN(outcome, take_name(names.store, op, *directory, named.entry, *named.inode));
        }
        op.end();
        if (outcome == UnlinkOutcome::kLastName)
            remove_if_forgotten(names, named.inode->number);
        if (outcome != UnlinkOutcome::kChanged)
            return {};
    }
}

}  // namespace

Status expect_empty(Store& store, InodeNumber directory)
{
    ItemScan scan(store.items, store.items.view(), dirent_key(directory, 0),
                  dirent_key(directory, UINT64_MAX));
    const Status status = scan.next();
    if (status.err() == Err::kNotFound)
        return {};
    return status.ok() ? Err::kNotEmpty : status.err();
}

Status Names::unlink(InodeNumber parent, std::string_view name)
{
    if (is_dot_name(name))
        return Err::kIsDirectory;
    return remove_name(*this, parent, name, S_IFREG);
}

Status Names::rmdir(InodeNumber parent, std::string_view name)
{
    if (is_dot_name(name))
        return name == "." ? Err::kInvalid : Err::kNotEmpty;
    return remove_name(*this, parent, name, S_IFDIR);
}

}  // namespace cowraid
