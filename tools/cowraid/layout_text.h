// SPDX-License-Identifier: MIT
// The block groups of a volume drawn over its members, and the table of who holds what.
#pragma once

#include <string>
#include <vector>

#include "base/text.h"
#include "fs/layout.h"

namespace cowraid {

// A run of slots of one member that belong to one group, in bytes from the member's first slot.
struct SlotPiece {
    uint64_t offset = 0, bytes = 0;
    size_t group = 0;  // index into VolumeLayout::groups
    uint64_t column_offset = 0;  // where in the column it begins
    bool stale = false;
};
// By rising offset.
std::vector<SlotPiece> pieces_of(const VolumeLayout& layout, const LayoutMember& member);

// "Metadata+System,RAID1", with that between content and profile.
std::string space_title(uint32_t content, ProfileId profile, const char* between);

// Lines of at most about `width` characters for each member, and a line for each group.
std::vector<std::string> draw_layout(const VolumeLayout& layout, SizeStyle sizes, size_t width);
// What each profile has on which members, and what is left of them, as of `btrfs filesystem usage`.
std::vector<std::string> draw_usage_list(const VolumeInfo& info, const VolumeLayout& layout, SizeStyle sizes);
// Rows are members, columns are contents with their profiles, as of `btrfs filesystem usage -T`.
std::vector<std::string> draw_usage_table(const VolumeInfo& info, const VolumeLayout& layout,
                                          SizeStyle sizes);

}  // namespace cowraid
