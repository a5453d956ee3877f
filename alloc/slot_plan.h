// SPDX-License-Identifier: MIT
// Which members a new block group takes and how large its columns are. Pure arithmetic on free slot counts.
//
// A group of the widest profile that still fits is always made first; narrower ones follow as members fill
// up. Its columns are one power of two of bytes on every member, a multiple of every chosen member's slot:
//   - as a rule 1/64 of the largest member, 16 MiB to 1 GiB;
//   - more where the volume would else need more than about 3/8 of kMaxGroups groups, and where what is free
//     would else need more than half of the groups that are left;
//   - less where a member has less room left, so that its last slots are used and the width is kept;
//   - for mirrors of w copies at most n / (w + 1), when n bytes of data are what could still be held at best:
//     the w members with most space may then give up that much without lowering n by more, so that with slots
//     of one size all of n is reached.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "format/profile.h"

namespace cowraid {

struct MemberRoom {
    MemberId id;
    uint64_t slot_bytes = 0;
    uint64_t slot_count = 0;
    uint64_t free_slots = 0;
    bool usable = false;
    bool away = false;  // a group takes at most as many of these as its profile tolerates

    [[nodiscard]] uint64_t free_bytes() const { return free_slots * slot_bytes; }
};

struct GroupShape {
    uint64_t column_bytes = 0;
    uint32_t data_columns = 0;
    std::vector<size_t> members;  // indices, rising
};

// Nothing when fewer than min_members members have room, or `group_count` groups are all there can be.
std::optional<GroupShape> plan_shape(std::span<const MemberRoom> members, const Profile& profile,
                                     uint64_t group_count);

}  // namespace cowraid
