// SPDX-License-Identifier: MIT
#include "fs/volume/missing_members.h"

#include <doctest/doctest.h>

using namespace cowraid;

namespace {

// Members 1 to `count`, and one group over all of them.
struct SpreadVolume {
    SpreadVolume(ProfileId profile, uint32_t count)
    {
        GroupRecord group{.profile = profile};
        for (uint32_t id = 1; id <= count; ++id) {
            superblock.members.push_back({.id = {id}});
            group.columns.push_back({.member = {id}, .runs = {}, .stale_since = {}});
        }
        map.groups.push_back(group);
    }

    ReadOnlyReason reason_without(const std::vector<MemberId>& missing, const MountOptions& options) const
    {
        ReadOnlyReason reason;
        const std::string why = assess_missing(superblock, map, missing, {}, "lacks", options, reason);
        CHECK_MESSAGE(why.empty(), why);
        return reason;
    }

    Superblock superblock;
    GroupMap map;
};

constexpr MountOptions kDegraded{.degraded = true};
constexpr MountOptions kRescue{.read_only = true, .rescue = true};

}  // namespace

TEST_CASE("missing members: too few of them to write, and whether half of them can")
{
    const SpreadVolume volume(ProfileId::kRaid1c3, 4);
    const ReadOnlyReason half = volume.reason_without({{1}, {2}}, kDegraded);
    CHECK(half.text == "too few members are present for safe writing");
    CHECK(half.step == "unmount it and mount it with more members, or with -o degraded=force, which writes "
                       "with those that are there");
    const SpreadVolume mirror(ProfileId::kRaid1c3, 3);
    const ReadOnlyReason one = mirror.reason_without({{1}, {2}}, kDegraded);
    CHECK(one.text == half.text);
    CHECK(one.step == "unmount it and mount it with more members; until then copy what can be read");
    CHECK(volume.reason_without({{1}}, kDegraded).text.empty());
}

TEST_CASE("missing members: more than the profile tolerates is no question of their number")
{
    SpreadVolume volume(ProfileId::kRaid5, 5);
    const ReadOnlyReason missing = volume.reason_without({{2}, {3}}, kRescue);
    CHECK(missing.text == "more is missing than raid5 tolerates");
    CHECK(missing.step.find("degraded=force") == std::string::npos);
    // All are there, and all lack writes.
    for (GroupColumn& column : volume.map.groups.front().columns)
        column.stale_since = {7};
    const ReadOnlyReason stale = volume.reason_without({}, kRescue);
    CHECK(stale.text == "members lack more writes than raid5 tolerates");
    CHECK(stale.step == "copy what can be read: no member has the rest");
}
