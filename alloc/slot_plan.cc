// SPDX-License-Identifier: MIT
#include "alloc/slot_plan.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "format/group_map.h"
#include "format/member_layout.h"
#include "format/superblock.h"

namespace cowraid {

namespace {

constexpr uint64_t kColumnsPerMember = 64;
constexpr uint64_t kUsualMaxColumnBytes = kGiB;
constexpr uint64_t kAimedGroups = uint64_t{kMaxGroups} / 8 * 3;

// Bytes of data that mirrors of `copies` members each can hold at best: the largest n for which the sum of
// min(free, n) is n * copies. Members with more than n take part in every group.
uint64_t mirror_bytes(std::vector<uint64_t> free, uint64_t copies)
{
    if (free.size() < copies)
        return 0;
    std::sort(free.begin(), free.end(), [](uint64_t a, uint64_t b) { return a > b; });
    uint64_t sum = 0;
    for (const uint64_t part : free)
        sum += part;
    size_t full = 0;  // members with more than n
    while (free[full] > sum / (copies - full))
        sum -= free[full++];
    return sum / (copies - full);
}

// Bytes per member that groups of the profile take when they use up `bytes`: divided by the size of a column
// this is the number of groups, or a few more. Profiles of any width go on until fewer than min_members
// members have room. A group leaves out fewer than `copies` members, so that of the largest 2 * copies - 1 it
// has as many as a mirror. Others spread over all members, mirrors as far as there are others for the copies.
uint64_t bytes_in_series(const Profile& profile, std::vector<uint64_t> bytes)
{
    if (bytes.size() < profile.min_members)
        return 0;
    if (profile.max_columns == 0) {
        std::sort(bytes.begin(), bytes.end(), [](uint64_t a, uint64_t b) { return a > b; });
        const uint32_t others = profile.min_members - profile.copies;
        bytes.resize(std::min<size_t>(bytes.size(), others + 2 * profile.copies - 1));
        bytes.erase(bytes.begin(), bytes.begin() + others);
    }
    return mirror_bytes(std::move(bytes), profile.copies);
}

uint64_t column_for(uint64_t bytes, uint64_t groups)
{
    return std::bit_ceil(std::max(kMinSlotBytes, divide_up(bytes, groups)));
}

struct ColumnLimits {
    uint64_t least;  // below this the volume would run out of groups
    uint64_t target;  // larger only if a member's slots are
};

ColumnLimits column_limits(std::span<const MemberRoom> members, const Profile& profile, uint64_t group_count)
{
    std::vector<uint64_t> whole;
    std::vector<uint64_t> rest;
    whole.reserve(members.size());
    rest.reserve(members.size());
    uint64_t largest = 0;
    for (const MemberRoom& member : members) {
        whole.push_back(member.slot_count * member.slot_bytes);
        rest.push_back(member.usable ? member.free_bytes() : 0);
        largest = std::max(largest, whole.back());
    }
    ColumnLimits limits;
    limits.least =
        std::min(column_for(bytes_in_series(profile, rest), divide_up(kMaxGroups - group_count, 2)),
                 max_column_bytes(largest));
    limits.target =
        std::clamp(std::bit_floor(largest / kColumnsPerMember), kMinSlotBytes, kUsualMaxColumnBytes);
    limits.target = std::max(limits.target, column_for(bytes_in_series(profile, whole), kAimedGroups));
    if (profile.copies > 1)
        limits.target = std::min(limits.target,
                                 std::bit_floor(mirror_bytes(rest, profile.copies) / (profile.copies + 1)));
    limits.target = std::min(std::max(limits.target, limits.least), max_column_bytes(largest));
    return limits;
}

// Members that can hold a column of that size, those with most free space, as many as the profile can use,
// and no more of those that are away than it tolerates.
std::vector<size_t> choose_members(std::span<const MemberRoom> members, const Profile& profile,
                                   uint64_t column_bytes)
{
    std::vector<size_t> chosen;
    chosen.reserve(members.size());
    for (size_t index = 0; index < members.size(); ++index) {
        const MemberRoom& member = members[index];
        if (member.usable && member.slot_bytes <= column_bytes && member.free_bytes() >= column_bytes)
            chosen.push_back(index);
    }
    std::sort(chosen.begin(), chosen.end(), [&](size_t a, size_t b) {
        const uint64_t free_a = members[a].free_bytes();
        const uint64_t free_b = members[b].free_bytes();
        return free_a != free_b ? free_a > free_b : members[a].id < members[b].id;
    });
    uint32_t away_count = 0;
    const auto too_many = [&](size_t index) {
        return members[index].away && ++away_count > profile.tolerance;
    };
    chosen.erase(std::remove_if(chosen.begin(), chosen.end(), too_many), chosen.end());
    size_t width =
        profile.max_columns == 0 ? chosen.size() : std::min<size_t>(chosen.size(), profile.max_columns);
    width -= (width - std::min<size_t>(width, profile.parity)) % profile.copies;
    chosen.resize(width < profile.min_members ? 0 : width);
    // Sets are neighbours: groups on the same members have the same sets.
    std::sort(chosen.begin(), chosen.end());
    return chosen;
}

}  // namespace

std::optional<GroupShape> plan_shape(std::span<const MemberRoom> members, const Profile& profile,
                                     uint64_t group_count)
{
    if (group_count >= kMaxGroups)
        return std::nullopt;
    const ColumnLimits limits = column_limits(members, profile, group_count);
    uint64_t top = limits.target;
    size_t width_max = 0;
    for (const MemberRoom& member : members) {
        top = std::max(top, member.slot_bytes);
        width_max += member.usable && member.free_slots > 0 ? 1 : 0;
    }
    if (profile.max_columns != 0)
        width_max = std::min<size_t>(width_max, profile.max_columns);
    GroupShape best;
    // Falling sizes: of equal width the largest up to the target wins, else the smallest above it.
    for (uint64_t column = top; column >= limits.least; column /= 2) {
        if (best.members.size() == width_max && best.column_bytes <= limits.target)
            break;
        std::vector<size_t> chosen = choose_members(members, profile, column);
        const bool better = chosen.size() > best.members.size() ||
                            (chosen.size() == best.members.size() && best.column_bytes > limits.target);
        if (!chosen.empty() && better) {
            best.column_bytes = column;
            best.members = std::move(chosen);
        }
    }
    if (best.members.empty())
        return std::nullopt;
    best.data_columns = (static_cast<uint32_t>(best.members.size()) - profile.parity) / profile.copies;
    return best;
}

}  // namespace cowraid
