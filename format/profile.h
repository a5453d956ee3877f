// SPDX-License-Identifier: MIT
// RAID levels as data: no code branches on a level's name.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "format/group_map.h"

namespace cowraid {

struct Profile {
    ProfileId id;
    const char* name;  // as typed: "raid6"
    const char* title;  // as printed: "RAID6"
    uint32_t copies;  // of every data column
    uint32_t parity;  // parity columns
    uint32_t min_members;  // fewest columns of a group
    uint32_t max_columns;  // 0: as many members as have room
    uint32_t tolerance;  // members that may be lost
};

std::span<const Profile> profiles();
// Null when the id is unknown (an on-disk value) or the name is not a profile.
const Profile* find_profile(ProfileId id);
const Profile* find_profile(std::string_view name);
// The profile that keeps `copies` of everything, 1 to 4, each on a member, and nothing else.
const Profile& mirror_of(size_t copies);

}  // namespace cowraid
