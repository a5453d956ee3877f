// SPDX-License-Identifier: MIT
// What the operations on names and attributes share (lookup, create, link, unlink, rename, attributes).
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "fs/files/inode.h"
#include "fs/names/dirent.h"
#include "fs/names/names.h"
#include "fs/txn/operation.h"

namespace cowraid {

// A reference to an inode for the length of an operation. Letting go also drops the inode from memory when
// nobody else needs it, so it must outlive the locks: declare it before InodeLocks.
class InodeUse {
public:
    InodeUse() = default;
    InodeUse(Names& names, Ref<Inode> inode) : names_(&names), inode_(std::move(inode)) { }
    InodeUse(InodeUse&& other) noexcept
        : names_(std::exchange(other.names_, nullptr)), inode_(std::move(other.inode_))
    {
    }
    InodeUse& operator=(InodeUse&& other) noexcept
    {
        std::swap(names_, other.names_);
        std::swap(inode_, other.inode_);
        return *this;
    }
    InodeUse(const InodeUse&) = delete;
    InodeUse& operator=(const InodeUse&) = delete;
    ~InodeUse();

    [[nodiscard]] const Ref<Inode>& ref() const { return inode_; }
    [[nodiscard]] Inode* get() const { return inode_.get(); }
    Inode* operator->() const { return inode_.get(); }
    Inode& operator*() const { return *inode_; }
    explicit operator bool() const { return static_cast<bool>(inode_); }

private:
    Names* names_ = nullptr;
    Ref<Inode> inode_;
};

// One lookup reference, given back unless keep() is called. Declare it before InodeLocks.
class LookupReference {
public:
    LookupReference(Names& names, const InodeUse& inode);
    ~LookupReference();
    LookupReference(const LookupReference&) = delete;
    LookupReference& operator=(const LookupReference&) = delete;
    void keep() { names_ = nullptr; }

private:
    Names* names_;
    InodeNumber inode_;
};

// The inode behind a number that came from outside; kStale when it is gone. No locks held.
Result<InodeUse> use_inode(Names& names, InodeNumber number);
// As use_inode(); kNotDirectory for anything else, kNotFound for a removed directory.
Result<InodeUse> use_directory(Names& names, InodeNumber number);
// The inode behind a directory entry. kNotFound when it was removed meanwhile: look the name up again.
// kCorrupt when the entry stands in its own directory or contradicts the inode's type. No locks held.
Result<InodeUse> use_entry(Names& names, InodeNumber directory, const Dirent& entry);

// The name's slot as of now. kInvalid and kNameTooLong for what cannot be a name.
Result<DirentSlot> find_name(Store& store, InodeNumber directory, std::string_view name);
// The entry and its inode. kNotFound when there is no such name. No locks held.
struct NamedInode {
    Dirent entry;
    InodeUse inode;
};
Result<NamedInode> resolve_name(Names& names, InodeNumber directory, std::string_view name);

Attributes attributes_of(const Inode& inode) CW_REQUIRES(inode.mutex);

// A new inode in memory, which nothing names yet: who does not store it sets `removed`. Hold a lookup
// reference of one that can be found before its maker is done. kNoSpace: the numbers are used up.
Result<InodeUse> begin_inode(Names& names, uint32_t mode, uint64_t rdev, const Caller& caller);
// Set-gid directories hand their group down, and the bit itself to directories.
void inherit_group(const InodeAttributes& directory, InodeAttributes& child);

// Directories count two bytes per byte of a name.
uint64_t name_weight(std::string_view name);
// Counts names in or out of a directory and stamps its times. Requires directory.mutex; not stored yet.
void add_name_weight(Inode& directory, std::string_view name) CW_REQUIRES(directory.mutex);
void remove_name_weight(Inode& directory, std::string_view name) CW_REQUIRES(directory.mutex);
void touch_directory(Inode& directory, const timespec& now) CW_REQUIRES(directory.mutex);
// One subdirectory less.
void drop_subdirectory(Inode& directory) CW_REQUIRES(directory.mutex);
// One more name of the inode: puts entry and link, takes the next link sequence. The caller stores both
// inodes. Requires both locked, cursor free.
void put_name(Operation& op, Inode& directory, uint64_t cursor, std::string_view name, Inode& inode);
// One name less: erases the link item, counts down, makes an orphan of an inode without names (a directory
// has one name), stamps and stores it. The directory entry is the caller's. True: nothing is left of it but
// its references. Requires inode.mutex.
bool drop_link(Operation& op, Inode& inode, uint64_t link_sequence, const timespec& now)
    CW_REQUIRES(inode.mutex);
// kNotEmpty when the directory has an entry. Final only while the directory is locked.
Status expect_empty(Store& store, InodeNumber directory);
// For an inode whose last name went: hands it to the background unless somebody still refers to it. Call
// without locks and outside the gate.
void remove_if_forgotten(Names& names, InodeNumber inode);

}  // namespace cowraid
