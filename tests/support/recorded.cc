// SPDX-License-Identifier: MIT
#include "tests/support/recorded.h"

#include <algorithm>

#include "format/profile.h"

namespace cowraid::test {

namespace {

void look_at_slot(const SimDevice& disk, uint64_t offset, Recorded& newest)
{
    std::vector<std::byte> slot(kSuperblockSlotBytes);
    disk.peek(offset, slot);
    const Result<Superblock> superblock = decode_superblock(slot);
    if (!superblock.ok() || superblock->on_spare() || superblock->generation <= newest.superblock.generation)
        return;
    const MemberRecord* member = superblock->member(superblock->member_id);
    std::vector<std::byte> bytes(superblock->map.bytes);
    disk.peek(member->map_offset[superblock->map.place], bytes);
    Result<GroupMap> map = decode_group_map(bytes, superblock->map, *superblock);
    if (map.ok())
        newest = {*superblock, map.take()};
}

bool contains(const GroupMap& map, const GroupRecord& group)
{
    return std::any_of(map.groups.begin(), map.groups.end(),
                       [&](const GroupRecord& other) { return other.address == group.address; });
}

}  // namespace

Recorded read_recorded(std::span<const SimDevice* const> members)
{
    Recorded newest;
    for (const SimDevice* member : members)
        for (const uint64_t ring : kSuperblockRingOffset)
            for (uint32_t slot = 0; slot < kSuperblockSlotCount; ++slot)
                look_at_slot(*member, ring + uint64_t{slot} * kSuperblockSlotBytes, newest);
    return newest;
}

uint32_t tolerance_of(const Recorded& recorded)
{
    uint32_t tolerance = std::min(find_profile(recorded.superblock.data_profile)->tolerance,
                                  find_profile(recorded.superblock.metadata_profile)->tolerance);
    for (const GroupRecord& group : recorded.map.groups)
        tolerance = std::min(tolerance, find_profile(group.profile)->tolerance);
    return tolerance;
}

bool can_spare(const GroupRecord& group, const std::set<uint32_t>& failed)
{
    uint32_t leaving = 0, stale = 0;
    for (const GroupColumn& column : group.columns) {
        stale += column.stale() ? 1 : 0;
        leaving += !column.stale() && failed.contains(column.member.value - 1) ? 1 : 0;
    }
    return leaving == 0 || leaving + stale <= find_profile(group.profile)->tolerance;
}

bool leaves_majority(const Superblock& superblock, const std::set<uint32_t>& failed)
{
    return 2 * (superblock.members.size() - failed.size()) > superblock.members.size();
}

Verdict examine(const Recorded& before, const Recorded& after, const std::set<uint32_t>& failed)
{
    if (!leaves_majority(after.superblock, failed))
        return Verdict::kStopped;
    // The map afterwards calls columns stale because their members left.
    Verdict verdict = Verdict::kSpared;
    for (const GroupRecord& group : before.map.groups) {
        if (can_spare(group, failed))
            continue;
        if (contains(after.map, group))
            return Verdict::kStopped;
        verdict = Verdict::kEither;
    }
    for (const GroupRecord& group : after.map.groups)
        if (!contains(before.map, group) && !can_spare(group, failed))
            verdict = Verdict::kEither;
    return verdict;
}

}  // namespace cowraid::test
