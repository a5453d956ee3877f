// SPDX-License-Identifier: MIT
// Operations on names, attributes and extended attributes; Filesystem forwards to these. Contracts there.
#pragma once

#include "fs/core.h"

namespace cowraid {

Result<Attributes> lookup_name(FilesystemCore& core, InodeNumber parent, std::string_view name);
bool forget_inode(FilesystemCore& core, InodeNumber inode, uint64_t count);
Result<Attributes> make_node(FilesystemCore& core, InodeNumber parent, std::string_view name, uint32_t mode,
                             uint64_t rdev, std::string_view symlink_target, const Caller& caller);
Result<Attributes> link_inode(FilesystemCore& core, InodeNumber inode, InodeNumber new_parent,
                              std::string_view new_name);
Status unlink_name(FilesystemCore& core, InodeNumber parent, std::string_view name);
Status remove_directory(FilesystemCore& core, InodeNumber parent, std::string_view name);
Status rename_name(FilesystemCore& core, InodeNumber parent, std::string_view name, InodeNumber new_parent,
                   std::string_view new_name, uint32_t flags);
Result<std::string> read_symlink(FilesystemCore& core, InodeNumber inode);
Status read_directory(FilesystemCore& core, InodeNumber directory, uint64_t cursor,
                      const Filesystem::ReadDirectory& how, DirectorySink& sink);

Result<Attributes> get_attributes(FilesystemCore& core, InodeNumber inode);
Result<Attributes> set_attributes(FilesystemCore& core, InodeNumber inode, const SetAttributes& change,
                                  const Caller& caller);
Result<std::unique_ptr<AttributeChange>> begin_set_attributes(FilesystemCore& core, InodeNumber inode,
                                                              const SetAttributes& change,
                                                              const Caller& caller);
void note_access(FilesystemCore& core, InodeNumber inode);

Status set_xattr(FilesystemCore& core, InodeNumber inode, std::string_view name,
                 std::span<const std::byte> value, int flags);
Result<std::vector<std::byte>> get_xattr(FilesystemCore& core, InodeNumber inode, std::string_view name);
Result<std::string> list_xattrs(FilesystemCore& core, InodeNumber inode);
Status remove_xattr(FilesystemCore& core, InodeNumber inode, std::string_view name);

// Data (fs/file_*.cc).
Result<size_t> read_file(FilesystemCore& core, InodeNumber inode, uint64_t offset, std::span<std::byte> out);
Result<size_t> write_file(FilesystemCore& core, InodeNumber inode, uint64_t offset,
                          std::span<const std::byte> data, const Filesystem::WriteHow& how,
                          const Caller& caller);
// Changes the size of a regular file, to INT64_MAX at most. Zeroes the rest of the last block when it grows
// or shrinks into a block. Clears set-id bits like write_file().
std::unique_ptr<LongChange> begin_truncation(FilesystemCore& core, Ref<Inode> inode, uint64_t new_size,
                                             const Caller& caller);
Result<std::unique_ptr<LongChange>> begin_allocate_range(FilesystemCore& core, InodeNumber inode, int mode,
                                                         uint64_t offset, uint64_t length,
                                                         const Caller& caller);

}  // namespace cowraid
