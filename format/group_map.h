// SPDX-License-Identifier: MIT
// On disk: the block-group map. Self-checking, replicated on every member, named by the superblock.
#pragma once

#include "base/le.h"
#include "base/units.h"

namespace cowraid {

inline constexpr uint64_t kGroupMapMagic = 0x50414d5057475243;  // "CRGWPMAP"
inline constexpr uint32_t kMaxGroups = 8192;

enum class ProfileId : uint32_t {
    kSingle = 1,
    kRaid0 = 2,
    kRaid1 = 3,
    kRaid1c3 = 4,
    kRaid1c4 = 5,
    kRaid10 = 6,
    kRaid5 = 7,
    kRaid6 = 8,
};

// What a group may hold; bits.
inline constexpr uint32_t kGroupData = 1;
inline constexpr uint32_t kGroupMetadata = 2;
inline constexpr uint32_t kGroupSystem = 4;  // checksum, free-space and root trees; always mirrored or single
inline constexpr uint32_t kAllContent = kGroupData | kGroupMetadata | kGroupSystem;

inline constexpr uint32_t kGroupReadOnly = 1;  // flags: closed for allocation (migration)
// flags: closed for good; its blocks move, so that an address in it may have an entry in the remap tree
inline constexpr uint32_t kGroupEmptying = 2;
// flags: the target of a replacement has all that the source's column of the group has
inline constexpr uint32_t kGroupCopied = 4;
// flags: the balance that is under way empties it (kBalanceChosen)
inline constexpr uint32_t kGroupChosen = 8;

struct DiskGroupMap {
    le64 checksum;  // xxh3-64 of the `bytes - 8` bytes after this field
    le64 magic;
    uint8_t volume_uuid[16];
    le64 generation;
    le32 bytes;  // with all records and the zeros that fill the last block
    le32 group_count;
    uint8_t reserved[16];
    // group_count records follow, by rising address.
};
static_assert(sizeof(DiskGroupMap) == 64);

struct DiskGroup {
    le32 record_bytes;  // this header, its columns and their slot runs
    le32 content;  // kGroupData | ...
    le32 profile;  // ProfileId
    le32 flags;
    le64 address;  // of the first byte; the group spans (data_columns + parity) * column_bytes
    le64 column_bytes;  // of one column on one member
    le32 chunk_bytes;
    le32 data_columns;  // k; copies of mirrored profiles count once
    le32 column_count;  // members: k * copies + parity
    le32 mapping_version;
    le64 created_generation;
    le64 verified_seconds;  // since 1970: when the last scrub that found it as it must be began with it; 0:
                            // none
    // column_count times: DiskGroupColumn and its DiskSlotRun records.
};
static_assert(sizeof(DiskGroup) == 64);

struct DiskGroupColumn {
    le32 member_id;
    le32 run_count;
    le64 stale_since;  // first commit whose writes the column may have missed; 0: it has everything
};
static_assert(sizeof(DiskGroupColumn) == 16);

struct DiskSlotRun {
    le32 first_slot;
    le32 slot_count;
};
static_assert(sizeof(DiskSlotRun) == 8);

}  // namespace cowraid
