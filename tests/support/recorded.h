// SPDX-License-Identifier: MIT
// What the platters say of members and block groups, and which failures that allows.
#pragma once

#include <cstdint>
#include <set>
#include <span>

#include "format/group_map_codec.h"
#include "sim/sim_device.h"

namespace cowraid::test {

struct Recorded {
    Superblock superblock;
    GroupMap map;
};

// The newest commit of which superblock and map are on a member, behind every cache.
Recorded read_recorded(std::span<const SimDevice* const> members);

// As many members may be lost as the weakest block group tolerates, of those that there are and those that
// would be made: while a balance converts them, as the weaker profile does.
uint32_t tolerance_of(const Recorded& recorded);

// The rule for members that fail, by index: while every group can do without them, and more than half of the
// members are left, they leave service; beyond that the volume stops. A group can do without as many columns
// as its profile tolerates, those that missed writes among them.
bool can_spare(const GroupRecord& group, const std::set<uint32_t>& failed);
bool leaves_majority(const Superblock& superblock, const std::set<uint32_t>& failed);
// Whether they must leave, stop the volume, or, where groups came or went meanwhile, either.
enum class Verdict : uint8_t { kSpared, kStopped, kEither };
Verdict examine(const Recorded& before, const Recorded& after, const std::set<uint32_t>& failed);

}  // namespace cowraid::test
