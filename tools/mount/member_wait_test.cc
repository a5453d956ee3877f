// SPDX-License-Identifier: MIT
#include "tools/mount/member_wait.h"

#include <doctest/doctest.h>

namespace cowraid {

namespace {

// What a search finds of a volume of three: members by id, each with a table of these states.
VolumeMembers found_of(std::vector<uint32_t> ids, std::vector<MemberState> states)
{
    VolumeMembers volume;
    for (const uint32_t id : ids) {
        Superblock superblock;
        superblock.member_id = {id};
        superblock.generation = {7};
        superblock.epochs = {{.epoch = 1, .generation = {1}}};
        for (size_t index = 0; index < states.size(); ++index)
            superblock.members.push_back({.id = {static_cast<uint32_t>(index + 1)}, .state = states[index]});
        volume.members.push_back({.path = "/dev/m" + std::to_string(id), .superblock = superblock});
    }
    return volume;
}

MountRequest request_for(std::vector<std::string> paths, std::optional<uint32_t> seconds = {})
{
    MountRequest request;
    request.volume.paths = std::move(paths);
    request.missing_seconds = seconds;
    return request;
}

}  // namespace

TEST_CASE("waited for is who took part in the last commit and is not there")
{
    using enum MemberState;
    CHECK(awaited_members(found_of({1, 2, 3}, {kPresent, kPresent, kPresent})).empty());
    CHECK(awaited_members(found_of({1, 3}, {kPresent, kPresent, kPresent})) == std::vector<MemberId>{{2}});
    CHECK(awaited_members(found_of({3}, {kPresent, kPresent, kPresent})) == std::vector<MemberId>{{1}, {2}});
    CHECK(awaited_members(found_of({1, 3}, {kPresent, kMissing, kPresent})).empty());
    CHECK(awaited_members(found_of({1, 3}, {kPresent, kFailed, kPresent})).empty());
    CHECK(awaited_members({}).empty());

    // Nothing depends on the new device of a replacement.
    VolumeMembers replaced = found_of({1, 3}, {kPresent, kPresent, kPresent});
    for (FoundMember& member : replaced.members)
        member.superblock.replace = {.source = {1}, .target = {2}, .started = 5};
    CHECK(awaited_members(replaced).empty());

    // Nor is a device there in place of the one that took its place.
    VolumeMembers attached = found_of({1, 2}, {kPresent, kPresent});
    attached.members[0].superblock.generation = {9};
    attached.members[0].superblock.members[1].uuid.bytes[0] = 1;
    CHECK(awaited_members(attached) == std::vector<MemberId>{{2}});
    // Who names that device is told so at once.
    attached.members[1].named = true;
    CHECK(awaited_members(attached).empty());

    // The newest superblock counts: member 3 was away when the others went on without 2.
    VolumeMembers volume = found_of({3}, {kPresent, kPresent, kPresent});
    VolumeMembers newer = found_of({1}, {kPresent, kMissing, kMissing});
    newer.members[0].superblock.generation = {9};
    volume.members.push_back(newer.members[0]);
    CHECK(awaited_members(volume).empty());

    // Where only a spare is there, those that it knew; it is none of them, whatever its number is.
    VolumeMembers spare = found_of({2}, {kPresent, kPresent, kMissing});
    Superblock& own = spare.members[0].superblock;
    own.spares = {own.members[1]};
    own.generation = {4};
    own.members.erase(own.members.begin() + 1);
    CHECK(awaited_members(spare) == std::vector<MemberId>{{1}});
    spare.members.push_back(found_of({1}, {kPresent, kPresent, kPresent}).members[0]);
    CHECK(awaited_members(spare) == std::vector<MemberId>{{2}, {3}});
}

TEST_CASE("how long a mount waits")
{
    CHECK(missing_seconds(request_for({}), false) == kMissingSecondsDefault);
    CHECK(missing_seconds(request_for({"/dev/a"}), false) == kMissingSecondsDefault);
    CHECK(missing_seconds(request_for({"/dev/a"}), true) == 0);
    CHECK(missing_seconds(request_for({"/dev/a", "/dev/b"}), false) == 0);
    CHECK(missing_seconds(request_for({"/dev/a", "/dev/b"}, 5), true) == 5);
    CHECK(missing_seconds(request_for({}, 0), false) == 0);
}

}  // namespace cowraid
