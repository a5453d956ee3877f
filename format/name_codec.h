// SPDX-License-Identifier: MIT
// Items that carry names: directory entries, the links back from an inode to its names, extended
// attributes. Entries of a directory and attributes of an inode are found through buckets of name hashes:
// key offset = bucket | collision number, up to 256 names to a bucket.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "format/key.h"

namespace cowraid {

inline constexpr uint64_t kBucketSlots = 256;
inline constexpr size_t kXattrValueBytesMax = 65536;  // what setxattr(2) takes
// Cursors stay in [kMinCursor, kMaxCursor]: 0, 1 and 2 are the places around "." and "..", and the cursor
// behind an entry must still be a positive off_t.
inline constexpr uint64_t kMinCursor = kBucketSlots;
inline constexpr uint64_t kMaxCursor = (uint64_t{1} << 63) - kBucketSlots - 1;

struct Dirent {
    uint64_t cursor = 0;
    InodeNumber inode;
    uint64_t link_sequence = 0;
    uint32_t mode_type = 0;  // S_IFMT bits
    std::string name;
};

// One name of an inode, as the inode knows it.
struct InodeLink {
    InodeNumber parent;
    uint64_t cursor = 0;
    std::string name;
};

// One part of an extended attribute; most have only one.
struct XattrPart {
    uint64_t cursor = 0;
    std::string name;
    uint32_t number = 0;
    bool more = false;  // another part follows
    ItemBytes value;
};

// Whether `name` can be one: kInvalid when empty or with '/' or NUL inside, kNameTooLong above 255 bytes.
Status check_name(std::string_view name);
[[nodiscard]] bool is_dot_name(std::string_view name);  // "." or ".."

// First cursor of the bucket a name belongs to; a multiple of kBucketSlots within the cursor bounds.
uint64_t name_bucket(uint64_t seed, std::string_view name);

Key dirent_key(InodeNumber directory, uint64_t cursor);
Key link_key(InodeNumber inode, uint64_t sequence);
Key xattr_key(InodeNumber inode, uint64_t cursor);
Key symlink_key(InodeNumber inode);
Key orphan_key(InodeNumber inode);

ItemBytes encode_dirent(const Dirent& entry);
ItemBytes encode_link(const InodeLink& link);
// The items of an extended attribute, in the order of their parts. Requires what set_xattr() checks: a name
// of 1..255 bytes, a value of at most kXattrValueBytesMax.
std::vector<ItemBytes> encode_xattr(std::string_view name, std::span<const std::byte> value);
// kCorrupt for a payload that no entry can have: lengths, names, inode numbers, types.
Result<Dirent> decode_dirent(uint64_t cursor, std::span<const std::byte> payload);
Result<InodeLink> decode_link(std::span<const std::byte> payload);
Result<XattrPart> decode_xattr(uint64_t cursor, std::span<const std::byte> payload);

}  // namespace cowraid
