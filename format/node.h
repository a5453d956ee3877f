// SPDX-License-Identifier: MIT
// On disk: one node of a copy-on-write B-tree. 16 KiB; payload of leaf items grows down from the end.
#pragma once

#include "base/le.h"
#include "base/units.h"
#include "format/superblock.h"

namespace cowraid {

inline constexpr uint64_t kNodeMagic = 0x45444f4e57475243;  // "CRGWNODE"
inline constexpr uint32_t kNodeMaxLevel = 15;

// Which tree a node belongs to. File trees of subvolumes start at kFirstFileTree.
inline constexpr uint64_t kRootTree = 1;
inline constexpr uint64_t kChecksumTree = 2;
inline constexpr uint64_t kFreeSpaceTree = 3;
inline constexpr uint64_t kRemapTree = 4;  // moved blocks
inline constexpr uint64_t kReferenceTree = 5;  // reserved: counts of shared blocks
inline constexpr uint64_t kFirstFileTree = 256;

// What a node holds is vouched for by the pointer to it alone: nothing in the node says that it is whole.
struct DiskNodeHeader {
    le64 magic;
    uint8_t volume_uuid[16];
    le64 address;  // the volume address it was written to
    le64 generation;  // the commit that wrote it
    le64 tree_id;
    le16 level;  // 0: leaf
    le16 reserved;
    le32 item_count;
    le64 reserved2;
};
static_assert(sizeof(DiskNodeHeader) == 64);

// Keys order by object, then type, then offset.
struct DiskLeafItem {
    le64 object;
    le64 offset;
    uint8_t type;
    uint8_t reserved1;
    le16 data_offset;  // from the start of the node
    le16 data_bytes;
    uint8_t reserved2[2];
};
static_assert(sizeof(DiskLeafItem) == 24);

// The key is the first key of the child's subtree or below it.
struct DiskChildItem {
    le64 object;
    le64 offset;
    uint8_t type;
    uint8_t reserved[7];
    DiskBlockRef child;
};
static_assert(sizeof(DiskChildItem) == 72);

// The largest payload of one leaf item: at least two such items share a leaf.
inline constexpr uint32_t kMaxItemBytes = (kNodeBytes - sizeof(DiskNodeHeader)) / 2 - sizeof(DiskLeafItem);

}  // namespace cowraid
