// SPDX-License-Identifier: MIT
// What tests of replacements share: volumes, and the steps of one.
#pragma once

#include "device/superblock_store.h"
#include "tests/filesystem/scrub_steps.h"
#include "tests/filesystem/volume_shapes.h"

namespace cowraid::test {

inline constexpr MemberId kSource{2};
inline constexpr uint32_t kSourceDevice = 1;

inline Status start(SimVolume& volume, uint32_t device, std::string& why)
{
    return volume.fs().committer.replace_member(kSource, volume.borrow_one(device), why);
}

inline uint32_t start(SimVolume& volume)
{
    const uint32_t device = volume.add_device(volume.shape().member_bytes);
    std::string why;
    const Status started = start(volume, device, why);
    REQUIRE_MESSAGE(started.ok(), why);
    return device;
}

inline ReplaceStatus run(SimVolume& volume)
{
    Filesystem& fs = volume.fs();
    for (int step = 0; step < 2000 && fs.replace_step(); ++step)
        continue;
    return fs.committer.replace.status();
}

inline bool is_member(SimVolume& volume, uint32_t device)
{
    return volume.fs().volume->members().path(kSource) == "member" + std::to_string(device + 1);
}

// The volume has `members`, and as many of them may be lost as before.
inline void require_redundant(SimVolume& volume, const Contents& contents, uint32_t left_out)
{
    require_contents(volume.fs(), contents);
    CHECK(volume.fs().volume->member_table().size() == volume.shape().member_count);
    REQUIRE(volume.unmount().ok());
    require_clean(volume, {left_out});
    std::vector<uint32_t> absent = {left_out};
    for (uint32_t member = 0; absent.size() <= find_profile(volume.shape().data_profile)->tolerance;
         member += 2)
        absent.push_back(member);
    mount(volume, absent.size() == 1 ? manual_options() : degraded_options(), absent);
    require_contents(volume.fs(), contents);
}

// Until only the last step is due.
inline uint32_t up_to_taking_over(SimVolume& volume)
{
    const uint32_t device = start(volume);
    for (int step = 0; step < 2000; ++step) {
        const ReplaceStatus status = volume.fs().committer.replace.status();
        if (status.groups_copied == status.groups_total)
            break;
        REQUIRE(volume.fs().replace_step());
    }
    return device;
}

// Devices without a superblock.
inline std::vector<uint32_t> blank_ones(SimVolume& volume)
{
    std::vector<uint32_t> blank;
    for (uint32_t index = 0; index < volume.member_count(); ++index)
        if (!read_rings(*volume.borrow_one(index)).ok())
            blank.push_back(index);
    return blank;
}

// Where a group of that content begins on the device.
inline uint64_t column_begin(SimVolume& volume, uint32_t device, uint32_t content)
{
    for (const Ref<const ArrayGroup>& group : volume.fs().volume->array().groups())
        for (uint32_t column = 0; column < group->record.columns.size(); ++column)
            if ((group->record.content & content) != 0 &&
                group->record.columns[column].member == MemberId{device + 1})
                return group->extents[column].front().offset.value;
    FAIL("no such group");
    return 0;
}

// So many blocks in the first `span` bytes of such a group on the device are bad.
inline void spoil(SimVolume& volume, Prng& prng, uint32_t device, uint32_t content, uint64_t span, int count)
{
    const uint64_t begin = column_begin(volume, device, content);
    for (int index = 0; index < count; ++index) {
        const uint64_t offset = begin + prng.below(span / kBlockBytes) * kBlockBytes;
        if (prng.chance(1, 2))
            rot(volume, prng, device, offset);
        else
            volume.cable(device).add_rule({.action = FaultAction::kLatent,
                                           .kinds = kFaultReads,
                                           .begin = offset,
                                           .end = offset + kBlockBytes});
    }
}

// Only taking over is left to do.
inline void copy_all(SimVolume& volume)
{
    Replace& replace = volume.fs().committer.replace;
    for (int step = 0; step < 2000 && replace.status().groups_copied < replace.status().groups_total; ++step)
        volume.fs().replace_step();
    REQUIRE(replace.status().state == ReplaceStatus::State::kRunning);
}

}  // namespace cowraid::test
