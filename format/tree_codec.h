// SPDX-License-Identifier: MIT
// Items of the root tree, and what the free-space tree says of a whole block group.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "base/units.h"
#include "format/key.h"
#include "format/superblock_codec.h"

namespace cowraid {

// Numbers of the volume as they were when a transaction was closed.
struct VolumeCounters {
    uint64_t next_inode = 0;
    uint64_t inode_count = 0;
    uint64_t reserved_blocks = 0;
    // Of compressed extents: blocks of files, and what they are stored in. Unless counted they say nothing.
    uint64_t compressed_file_blocks = 0, compressed_blocks = 0;
    bool compression_counted = false;
};

struct GroupUsage {
    VolumeAddress group_address;
    uint64_t used_blocks = 0;
    uint64_t free_rows = 0;
    uint64_t free_stripes = 0;
};

Key tree_root_key(uint64_t tree_id);
Key volume_key();
Key group_usage_key(VolumeAddress group);

ItemBytes encode_tree_root(const BlockRef& root);
ItemBytes encode_volume_counters(const VolumeCounters& counters);
ItemBytes encode_group_usage(const GroupUsage& usage);
// kCorrupt for a payload of another length. What the values may be depends on the volume: see
// block_ref_valid(), fs/commit/mount.cc, and alloc/.
Result<BlockRef> decode_tree_root(std::span<const std::byte> payload);
Result<VolumeCounters> decode_volume_counters(std::span<const std::byte> payload);
Result<GroupUsage> decode_group_usage(VolumeAddress group, std::span<const std::byte> payload);

}  // namespace cowraid
