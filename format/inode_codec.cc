// SPDX-License-Identifier: MIT
#include "format/inode_codec.h"

#include <sys/stat.h>

#include <cstring>

#include "format/items.h"

namespace cowraid {

namespace {

DiskTime encode_time(const timespec& time)
{
    DiskTime disk;
    disk.seconds = static_cast<uint64_t>(time.tv_sec);
    disk.nanoseconds = static_cast<uint32_t>(time.tv_nsec);
    return disk;
}

timespec decode_time(const DiskTime& disk)
{
    return {static_cast<time_t>(disk.seconds.get()), static_cast<long>(disk.nanoseconds.get())};
}

bool known_type(uint32_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
    case S_IFDIR:
    case S_IFLNK:
    case S_IFIFO:
    case S_IFSOCK:
    case S_IFCHR:
    case S_IFBLK:
        return true;
    default:
        return false;
    }
}

// A directory names the one it stands in (a removed one stood in); nothing else names any.
bool valid_parent(const InodeAttributes& attributes)
{
    if (!attributes.is_directory())
        return attributes.parent == 0;
    return attributes.parent >= kRootInode && attributes.parent <= kMaxInode;
}

}  // namespace

bool InodeAttributes::is_directory() const
{
    return S_ISDIR(mode);
}

bool InodeAttributes::is_regular() const
{
    return S_ISREG(mode);
}

bool InodeAttributes::immutable() const
{
    return (flags & kInodeImmutable) != 0;
}

bool InodeAttributes::fixed() const
{
    return (flags & (kInodeImmutable | kInodeAppend)) != 0;
}

ItemBytes encode_inode(const InodeAttributes& attributes)
{
    DiskInode disk{};
    disk.size_bytes = attributes.size_bytes;
    disk.data_blocks = attributes.data_blocks;
    disk.generation = attributes.generation;
    disk.rdev = attributes.rdev;
    disk.mode = attributes.mode;
    disk.uid = attributes.uid;
    disk.gid = attributes.gid;
    disk.link_count = attributes.link_count;
    disk.accessed = encode_time(attributes.accessed);
    disk.modified = encode_time(attributes.modified);
    disk.changed = encode_time(attributes.changed);
    disk.created = encode_time(attributes.created);
    disk.next_link_sequence = attributes.next_link_sequence;
    disk.flags = attributes.flags;
    disk.parent = attributes.parent;
    ItemBytes payload(sizeof disk);
    std::memcpy(payload.data(), &disk, sizeof disk);
    return payload;
}

Result<InodeAttributes> decode_inode(std::span<const std::byte> payload)
{
    DiskInode disk;
    if (payload.size() != sizeof disk)
        return Err::kCorrupt;
    std::memcpy(&disk, payload.data(), sizeof disk);
    InodeAttributes attributes;
    attributes.size_bytes = disk.size_bytes;
    attributes.data_blocks = disk.data_blocks;
    attributes.generation = disk.generation;
    attributes.rdev = disk.rdev;
    attributes.mode = disk.mode;
    attributes.uid = disk.uid;
    attributes.gid = disk.gid;
    attributes.link_count = disk.link_count;
    attributes.accessed = decode_time(disk.accessed);
    attributes.modified = decode_time(disk.modified);
    attributes.changed = decode_time(disk.changed);
    attributes.created = decode_time(disk.created);
    attributes.next_link_sequence = disk.next_link_sequence;
    attributes.flags = disk.flags;
    attributes.parent = disk.parent;
    constexpr uint32_t kSecond = 1000000000;
    if (!known_type(attributes.mode) || attributes.size_bytes > INT64_MAX ||
        (attributes.flags & ~kInodeFlagsMask) != 0 || !valid_parent(attributes) ||
        disk.accessed.nanoseconds >= kSecond || disk.modified.nanoseconds >= kSecond ||
        disk.changed.nanoseconds >= kSecond || disk.created.nanoseconds >= kSecond)
        return Err::kCorrupt;
    return attributes;
}

Key inode_key(InodeNumber inode)
{
    return {inode.value, static_cast<uint8_t>(ItemType::kInode), 0};
}

}  // namespace cowraid
