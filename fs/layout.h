// SPDX-License-Identifier: MIT
// Where the block groups of a volume lie on its members, and how full they are.
#pragma once

#include <string>
#include <vector>

#include "fs/filesystem.h"

namespace cowraid {

struct LayoutMember {
    MemberId id;
    std::string path;  // empty when absent
    uint64_t slot_bytes = 0, slot_count = 0;
    uint64_t slots_offset = 0;  // of the first one, on the device

    [[nodiscard]] uint64_t bytes() const { return slot_bytes * slot_count; }
};

struct LayoutGroup {
    VolumeAddress address;
    uint32_t content = 0;  // kGroupData | kGroupMetadata | kGroupSystem
    ProfileId profile = ProfileId::kSingle;
    uint32_t data_columns = 0;
    uint64_t column_bytes = 0;
    uint64_t total_bytes = 0, used_bytes = 0;  // of user addresses
    std::vector<GroupColumn> columns;
    // The whole stripes of the group in pieces of `part_bytes` of each column: bytes of user addresses in use
    // in each, of data_columns * part_bytes. Empty: not asked for, or the trees cannot be read.
    uint64_t part_bytes = 0;
    std::vector<uint64_t> used_by_part;
    // When all of it was verified last; seconds since 1970; 0: not known.
    uint64_t verified = 0;
};

struct VolumeLayout {
    Uuid uuid;
    std::string label;
    std::vector<LayoutMember> members;
    std::vector<LayoutGroup> groups;  // by rising address
    // Where the next answer begins; 0: there is no more.
    VolumeAddress next;
};

// kStripes reads the free-space tree: it may wait for members.
enum class Occupancy : uint8_t { kGroups, kStripes };
// The groups from an address on, as many as about `items_max` columns, slot runs and parts belong to, at
// least one. Thread-safe. Errors of reading with kStripes only cost used_by_part.
VolumeLayout volume_layout(Filesystem& filesystem, VolumeAddress from, Occupancy occupancy,
                           uint64_t items_max);

}  // namespace cowraid
