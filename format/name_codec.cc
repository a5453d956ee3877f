// SPDX-License-Identifier: MIT
#include "format/name_codec.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "format/items.h"
#include "format/node.h"

namespace cowraid {

namespace {

// A fixed part and up to two variable ones behind it.
template <typename Disk>
ItemBytes join(const Disk& disk, std::string_view name, std::span<const std::byte> value = {})
{
    ItemBytes payload(sizeof disk + name.size() + value.size());
    std::memcpy(payload.data(), &disk, sizeof disk);
    std::memcpy(payload.data() + sizeof disk, name.data(), name.size());
    if (!value.empty())
        std::memcpy(payload.data() + sizeof disk + name.size(), value.data(), value.size());
    return payload;
}

std::string text_at(std::span<const std::byte> payload, size_t offset, size_t bytes)
{
    return {reinterpret_cast<const char*>(payload.data()) + offset, bytes};
}

bool valid_entry_name(std::string_view name)
{
    return check_name(name).ok() && !is_dot_name(name);
}

bool valid_inode(uint64_t number)
{
    return number >= kRootInode && number <= kMaxInode;
}

bool valid_cursor(uint64_t cursor)
{
    return cursor >= kMinCursor && cursor <= kMaxCursor;
}

bool valid_type(uint32_t mode_type)
{
    return mode_type == S_IFREG || mode_type == S_IFDIR || mode_type == S_IFLNK || mode_type == S_IFIFO ||
           mode_type == S_IFSOCK || mode_type == S_IFCHR || mode_type == S_IFBLK;
}

}  // namespace

Status check_name(std::string_view name)
{
    if (name.empty() || name.find('/') != std::string_view::npos || name.find('\0') != std::string_view::npos)
        return Err::kInvalid;
    return name.size() > kMaxNameBytes ? Err::kNameTooLong : Err::kOk;
}

bool is_dot_name(std::string_view name)
{
    return name == "." || name == "..";
}

uint64_t name_bucket(uint64_t seed, std::string_view name)
{
    constexpr uint64_t kFirst = kMinCursor / kBucketSlots;
    constexpr uint64_t kLast = kMaxCursor / kBucketSlots;
    const uint64_t bucket = seeded_hash(name.data(), name.size(), seed) >> 9;
    return (bucket < kFirst ? kFirst : bucket > kLast ? kLast : bucket) * kBucketSlots;
}

Key dirent_key(InodeNumber directory, uint64_t cursor)
{
    return {directory.value, static_cast<uint8_t>(ItemType::kDirent), cursor};
}

Key link_key(InodeNumber inode, uint64_t sequence)
{
    return {inode.value, static_cast<uint8_t>(ItemType::kLink), sequence};
}

Key xattr_key(InodeNumber inode, uint64_t cursor)
{
    return {inode.value, static_cast<uint8_t>(ItemType::kXattr), cursor};
}

Key symlink_key(InodeNumber inode)
{
    return {inode.value, static_cast<uint8_t>(ItemType::kSymlink), 0};
}

Key orphan_key(InodeNumber inode)
{
    return {0, static_cast<uint8_t>(ItemType::kOrphan), inode.value};
}

ItemBytes encode_dirent(const Dirent& entry)
{
    DiskDirent disk{};
    disk.inode = entry.inode.value;
    disk.link_sequence = entry.link_sequence;
    disk.mode_type = entry.mode_type;
    disk.name_bytes = static_cast<uint16_t>(entry.name.size());
    return join(disk, entry.name);
}

ItemBytes encode_link(const InodeLink& link)
{
    DiskLink disk{};
    disk.parent = link.parent.value;
    disk.cursor = link.cursor;
    disk.name_bytes = static_cast<uint16_t>(link.name.size());
    return join(disk, link.name);
}

std::vector<ItemBytes> encode_xattr(std::string_view name, std::span<const std::byte> value)
{
    const size_t part_bytes_max = kMaxItemBytes - sizeof(DiskXattr) - name.size();
    std::vector<ItemBytes> parts;
    do {
        const std::span<const std::byte> part = value.first(std::min(value.size(), part_bytes_max));
        value = value.subspan(part.size());
        DiskXattr disk{};
        disk.name_bytes = static_cast<uint8_t>(name.size());
        disk.part = static_cast<uint8_t>(parts.size() | (value.empty() ? 0 : kXattrMore));
        disk.value_bytes = static_cast<uint16_t>(part.size());
        parts.push_back(join(disk, name, part));
    } while (!value.empty());
    return parts;
}

Result<Dirent> decode_dirent(uint64_t cursor, std::span<const std::byte> payload)
{
    DiskDirent disk;
    if (payload.size() < sizeof disk || !valid_cursor(cursor))
        return Err::kCorrupt;
    std::memcpy(&disk, payload.data(), sizeof disk);
    if (payload.size() != sizeof disk + disk.name_bytes.get())
        return Err::kCorrupt;
    Dirent entry{cursor,
                 {disk.inode},
                 disk.link_sequence,
                 disk.mode_type,
                 text_at(payload, sizeof disk, disk.name_bytes)};
    // Nothing names the root directory.
    if (!valid_inode(entry.inode.value) || entry.inode.value == kRootInode || !valid_type(entry.mode_type) ||
        !valid_entry_name(entry.name))
        return Err::kCorrupt;
    return entry;
}

Result<InodeLink> decode_link(std::span<const std::byte> payload)
{
    DiskLink disk;
    if (payload.size() < sizeof disk)
        return Err::kCorrupt;
    std::memcpy(&disk, payload.data(), sizeof disk);
    if (payload.size() != sizeof disk + disk.name_bytes.get())
        return Err::kCorrupt;
    InodeLink link{{disk.parent}, disk.cursor, text_at(payload, sizeof disk, disk.name_bytes)};
    if (!valid_inode(link.parent.value) || !valid_cursor(link.cursor) || !valid_entry_name(link.name))
        return Err::kCorrupt;
    return link;
}

Result<XattrPart> decode_xattr(uint64_t cursor, std::span<const std::byte> payload)
{
    DiskXattr disk;
    if (payload.size() < sizeof disk || !valid_cursor(cursor))
        return Err::kCorrupt;
    std::memcpy(&disk, payload.data(), sizeof disk);
    const size_t name_bytes = disk.name_bytes;
    if (payload.size() != sizeof disk + name_bytes + disk.value_bytes.get())
        return Err::kCorrupt;
    XattrPart part{.cursor = cursor,
                   .name = text_at(payload, sizeof disk, name_bytes),
                   .number = disk.part & uint32_t{kXattrPartMask},
                   .more = (disk.part & kXattrMore) != 0,
                   .value = {}};
    if (name_bytes == 0 || part.name.find('\0') != std::string::npos)
        return Err::kCorrupt;
    const std::span<const std::byte> value = payload.subspan(sizeof disk + name_bytes);
    part.value.assign(value.begin(), value.end());
    return part;
}

}  // namespace cowraid
