// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <ctime>
#include <span>

#include "base/status.h"
#include "base/units.h"
#include "format/key.h"

namespace cowraid {

// DiskInode in host form.
struct InodeAttributes {
    uint64_t size_bytes = 0;
    uint64_t data_blocks = 0;
    uint64_t generation = 0;
    uint64_t rdev = 0;
    uint32_t mode = 0;
    uint32_t uid = 0;
    uint32_t gid = 0;
    uint32_t link_count = 0;
    timespec accessed{}, modified{}, changed{}, created{};
    uint64_t next_link_sequence = 0;
    uint64_t flags = 0;
    uint64_t parent = 0;

    [[nodiscard]] bool is_directory() const;
    [[nodiscard]] bool is_regular() const;
    // By its flags. Both: kInodeImmutable or kInodeAppend.
    [[nodiscard]] bool immutable() const;
    [[nodiscard]] bool fixed() const;
};

ItemBytes encode_inode(const InodeAttributes& attributes);
// kCorrupt for a payload that no inode can have.
Result<InodeAttributes> decode_inode(std::span<const std::byte> payload);

Key inode_key(InodeNumber inode);

}  // namespace cowraid
