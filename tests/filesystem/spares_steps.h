// SPDX-License-Identifier: MIT
// Volumes with devices in reserve, and what happens to them.
#pragma once

#include "device/superblock_store.h"
#include "tests/filesystem/volume_contents.h"

namespace cowraid::test {

inline constexpr uint64_t kSpareBytes = 160 * kMiB;
inline constexpr VolumeShape kFourRaid5{4, kSpareBytes, ProfileId::kRaid5, ProfileId::kRaid1, 16 * kKiB};

// A spare takes a place at once.
inline MountOptions spare_options()
{
    MountOptions options = degraded_options();
    options.spare_seconds = 0;
    return options;
}

inline void make_for_spares(SimVolume& volume)
{
    std::string why;
    REQUIRE_MESSAGE(volume.make(why).ok(), why);
    mount(volume, spare_options());
}

inline Result<MemberId> add_spare(SimVolume& volume, uint32_t device)
{
    std::string why;
    auto added = volume.fs().committer.add_spare(volume.borrow_one(device), why);
    CHECK_MESSAGE(added.ok() == why.empty(), why);
    return added;
}

// Writes to the device fail, and somebody notices.
inline void fail_writes(SimVolume& volume, uint32_t device, Prng& prng, Contents& contents)
{
    volume.cable(device).add_rule({.kinds = kFaultWrites});
    const std::string name = "noticed" + std::to_string(device);
    contents[name] = random_content(prng, 300 * kKiB);
    write_file(volume.fs(), name, contents[name]);
    REQUIRE(volume.fs().step(true).ok());
}

inline void catch_up(Filesystem& fs)
{
    for (int step = 0; step < 10000; ++step) {
        const Result<ScrubStatus> status = fs.catch_up_step();
        REQUIRE((status.ok() || status.err() == Err::kNotFound));
        if (!status.ok() || status->state != ScrubState::kRunning)
            break;
    }
    REQUIRE(fs.step(true).ok());
    REQUIRE(fs.step(true).ok());
    for (const Ref<const ArrayGroup>& group : fs.volume->array().groups())
        for (const GroupColumn& column : group->record.columns)
            CHECK_FALSE(column.stale());
}

inline std::string device_of(SimVolume& volume, MemberId member)
{
    MemberSet& members = volume.fs().volume->members();
    return members.device(member) == nullptr ? "" : members.path(member);
}

inline uint64_t newest_on(SimVolume& volume, uint32_t device)
{
    return read_rings(*volume.borrow_one(device))->valid.front().generation.value;
}

inline bool has_superblock(SimVolume& volume, uint32_t device)
{
    return read_rings(*volume.borrow_one(device)).ok();
}

// Copying to the end.
inline void finish_replacement(Filesystem& fs)
{
    for (int step = 0; step < 2000 && fs.replace_step(); ++step)
        continue;
    REQUIRE(fs.step(true).ok());
}

}  // namespace cowraid::test
