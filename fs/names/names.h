// SPDX-License-Identifier: MIT
// Names, attributes and extended attributes of inodes.
//
// Inode numbers come from lookup-like calls, which take one lookup reference each; forget() gives references
// back, and an unlinked inode lives until then.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fs/files/files.h"
#include "fs/names/removal_queue.h"

namespace cowraid {

// Receives directory entries in cursor order.
class DirectorySink {
public:
    virtual ~DirectorySink() = default;
    // `next_cursor` continues behind this entry. `attributes` is set when they were asked for and the inode
    // could be read; the entry then carries a lookup reference unless its name is "." or "..". False: full,
    // this entry not taken.
    virtual bool entry(std::string_view name, InodeNumber inode, uint32_t mode_type, uint64_t next_cursor,
                       const Attributes* attributes) = 0;
};

// A list of extended attributes in steps: the names so far, each with a terminating zero.
class XattrList : public LongChange {
public:
    [[nodiscard]] const std::string& names() const { return names_; }

protected:
    std::string names_;
};

// Every call is thread-safe.
struct Names {
    explicit Names(Files& file_data) : store(file_data.store), files(file_data) { }
    Names(const Names&) = delete;
    Names& operator=(const Names&) = delete;

    // "." is also of an inode that is no directory: who holds its number may look whether it is still there.
    Result<Attributes> lookup(InodeNumber parent, std::string_view name);
    // True: no reference is left.
    bool forget(InodeNumber inode, uint64_t count);
    // Makes a file of the type in `mode` (S_IFREG, S_IFDIR, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK).
    Result<Attributes> make_node(InodeNumber parent, std::string_view name, uint32_t mode, uint64_t rdev,
                                 const Caller& caller);
    // A regular file without a name, of which that directory is the first in other respects; link() may give
    // it one. Otherwise it goes with its last reference, or at the next mount.
    Result<Attributes> make_temporary(InodeNumber directory, uint32_t mode, const Caller& caller);
    Result<Attributes> make_symlink(InodeNumber parent, std::string_view name, std::string_view target,
                                    const Caller& caller);
    Result<Attributes> link(InodeNumber inode, InodeNumber new_parent, std::string_view new_name);
    Status unlink(InodeNumber parent, std::string_view name);
    Status rmdir(InodeNumber parent, std::string_view name);
    // `flags`: 0, RENAME_EXCHANGE, or any of RENAME_NOREPLACE and RENAME_WHITEOUT; anything else is kInvalid.
    // A whiteout (a device 0:0 of the caller, without permissions) takes the old name in the same step.
    Status rename(InodeNumber parent, std::string_view name, InodeNumber new_parent,
                  std::string_view new_name, uint32_t flags, const Caller& caller = {});
    Result<std::string> read_symlink(InodeNumber inode);
    // Entries behind `cursor` (0: from the start, "." and ".." first) until the sink is full. A cursor
    // stays valid whatever happens to other entries.
    struct ReadDirectory {
        bool with_attributes = false;
    };
    Status read_directory(InodeNumber directory, uint64_t cursor, const ReadDirectory& how,
                          DirectorySink& sink);

    Result<Attributes> get_attributes(InodeNumber inode);
    Result<Attributes> set_attributes(InodeNumber inode, const SetAttributes& change, const Caller& caller);
    // The same in steps, for a change of the size: it may have many extents to remove.
    Result<std::unique_ptr<AttributeChange>>
    begin_set_attributes(InodeNumber inode, const SetAttributes& change, const Caller& caller);
    // Flags of format/items.h, kInode... An opening for writing, or for appending only, as what it says there
    // allows: kNotPermitted. set_flags() replaces those of `mask`. kNotPermitted: the caller neither owns the
    // inode nor is root or has CAP_FOWNER, or changes kInodeImmutable or kInodeAppend without being root or
    // CAP_LINUX_IMMUTABLE. kUnsupported: there is no such flag. kInvalid: to be compressed and not to be.
    // Taking one of these two away is admitted on a full volume.
    Result<uint64_t> get_flags(InodeNumber inode);
    Status set_flags(InodeNumber inode, uint64_t mask, uint64_t flags, const Caller& caller);
    enum class OpenFor : uint8_t { kWriting, kAppending };
    Status check_open(InodeNumber inode, OpenFor what);
    // Reading updates atime by the mount's rule (relatime, noatime, nodiratime); called by the front end
    // after reads of files, directories and symbolic links.
    void note_access(InodeNumber inode);

    // Names with prefix "user." or "trusted." and others the front end lets through. `flags`: 0,
    // XATTR_CREATE, XATTR_REPLACE. An access list changes the mode, and is not stored when that says it all;
    // the mode loses the set-gid bit if it is among those that `caller` clears. kInvalid for a list that is
    // none, kAccess for a default list of what is no directory.
    Status set_xattr(InodeNumber inode, std::string_view name, std::span<const std::byte> value, int flags,
                     const Caller& caller = {});
    Result<std::vector<std::byte>> get_xattr(InodeNumber inode, std::string_view name);
    // Names, each with a terminating zero. kTooBig when they are longer than kMaxXattrListBytes: the kernel
    // takes no more (XATTR_LIST_MAX).
    static constexpr size_t kMaxXattrListBytes = 65536;
    Result<std::string> list_xattrs(InodeNumber inode);
    // The same in steps, each of which looks at some hundred items. A name that is there all the time is
    // among them once.
    Result<std::unique_ptr<XattrList>> begin_list_xattrs(InodeNumber inode);
    // An access list that is not there is no error.
    Status remove_xattr(InodeNumber inode, std::string_view name);
    // The file capability goes, as with every change of the content. Free where there is none.
    Status drop_capability(InodeNumber inode);

    Store& store;
    Files& files;
    // One directory rename at a time, so that no cycle can arise.
    Mutex rename_mutex{LockRank::kRename};
    std::atomic<uint64_t> directory_moves{0};  // changed under it, behind the move
    RemovalQueue removals;
    std::atomic<uint64_t> next_inode{0};
    std::atomic<uint64_t> inode_count{0};
    std::atomic<uint64_t> removed_bytes{0};  // in items of deleted files, since a commit was asked for them
};

}  // namespace cowraid
