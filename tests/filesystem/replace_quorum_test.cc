// SPDX-License-Identifier: MIT
// For whom a successor counts that may lack something.
#include "tests/filesystem/replace_steps.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

using ReplaceState = ReplaceStatus::State;
constexpr VolumeShape kTwo{2, kMemberBytes, ProfileId::kRaid1, ProfileId::kRaid1, 16 * kKiB};

// Writes of the block-group map to the device fail, after `skip` of them.
void fail_map_writes(SimVolume& volume, uint32_t device, uint64_t skip)
{
    const MemberRecord line = volume.fs().volume->member_table().front();
    volume.cable(device).add_rule({.kinds = kFaultWrites,
                                   .begin = std::min(line.map_offset[0], line.map_offset[1]),
                                   .end = std::max(line.map_offset[0], line.map_offset[1]) + line.map_bytes,
                                   .skip = skip});
}

// The successor has everything, and the map says so.
uint32_t copied_in_full(SimVolume& volume, Prng& prng, Contents& contents)
{
    make_and_mount(volume);
    contents = fill(volume.fs(), prng, 3 * kMiB);
    const uint32_t device = start(volume);
    copy_all(volume);
    REQUIRE(volume.fs().step(true).ok());
    REQUIRE(volume.fs().step(true).ok());
    return device;
}

}  // namespace

TEST_CASE("replace: of two members neither is done without as the other or the successor comes back")
{
    Prng prng(seed());
    for (const bool source_returns : {true, false})
        for (uint64_t skip = 0; skip < 3; ++skip) {
            CAPTURE(source_returns);
            CAPTURE(skip);
            SimVolume volume(kTwo);
            Contents contents;
            const uint32_t device = copied_in_full(volume, prng, contents);
            MemberSet& members = volume.fs().volume->members();
            const uint32_t away = source_returns ? kSourceDevice : device;
            volume.cable(away).add_rule({.action = FaultAction::kGone});
            change_one(volume.fs(), prng, contents);
            REQUIRE(volume.fs().step(true).ok());
            REQUIRE_FALSE(members.stopped());
            const MemberId back = source_returns ? kSource : volume.fs().volume->replacing().target;
            REQUIRE(members.failed(back));
            volume.cable(away).remove_all_rules();
            fail_map_writes(volume, kSourceDevice, skip);
            std::string why;
            if (volume.fs().committer.online_member(back, nullptr, why).ok()) {
                CHECK(skip > 0);
                break;
            }
            CHECK(members.stopped());
            volume.kill();
            volume.cable(kSourceDevice).remove_all_rules();
            mount(volume, degraded_options(), {source_returns ? kSourceDevice : device});
            CHECK_FALSE(volume.fs().store.service.read_only());
            require_contents(volume.fs(), contents);
        }
}

TEST_CASE("replace: a successor that may lack rows that a crash left stands in for nobody")
{
    Prng prng(seed());
    SimVolume volume({4, kMemberBytes, ProfileId::kRaid6, ProfileId::kRaid1c3, 16 * kKiB});
    Contents contents;
    copied_in_full(volume, prng, contents);
    REQUIRE(volume.unmount().ok());
    MountOptions options = degraded_options();
    options.join_above = 0;
    mount(volume, options);
    for (int change = 0; change < 20; ++change) {
        const std::string name = "committed" + std::to_string(change);
        write_file(volume.fs(), name, contents[name] = random_content(prng, 5000));
        REQUIRE(volume.fs().step(true).ok());
    }
    for (int change = 0; change < 20; ++change) {
        const std::string name = "joined" + std::to_string(change);
        write_file(volume.fs(), name, random_content(prng, 5000));
        REQUIRE(volume.fs().step(false).ok());
    }
    REQUIRE(volume.fs().volume->intent_log_live());
    // The first map of a mount is the one that it found.
    fail_map_writes(volume, kSourceDevice, 1);
    volume.kill();
    std::string why;
    CHECK_FALSE(volume.mount(degraded_options(), why, {0}).ok());
    volume.kill();
    volume.cable(kSourceDevice).remove_all_rules();
    mount(volume, manual_options());
    CHECK_FALSE(volume.fs().volume->degraded());
    require_contents(volume.fs(), contents);
    CHECK(run(volume).state == ReplaceState::kFinished);
}
