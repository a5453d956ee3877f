// SPDX-License-Identifier: MIT
// What tests of catching up share: its end, and devices that take the places of lost members.
#pragma once

#include "sim/borrowed_device.h"
#include "tests/filesystem/stale_world.h"

namespace cowraid::test {

// To the end, without the commit that makes it known.
inline ScrubStatus fill_columns(StaleWorld& world)
{
    ScrubStatus status;
    for (int step = 0; step < 1000; ++step) {
        const Result<ScrubStatus> now = world.fs->catch_up_step();
        if (!now.ok()) {
            CHECK(now.err() == Err::kNotFound);
            return status;
        }
        status = *now;
        if (status.state == ScrubState::kFinished)
            return status;
    }
    FAIL("it does not end");
    return {};
}

inline ScrubStatus catch_up(StaleWorld& world)
{
    const ScrubStatus status = fill_columns(world);
    if (status.state == ScrubState::kFinished)
        REQUIRE(world.fs->step(true).ok());
    return status;
}

// Fills columns until they are current. At every `step`th event of the commit behind that the power fails,
// the volume is mounted again, and look(what was found) is called. Returns how often.
template <typename Look> int cut_fillings(StaleWorld& world, uint64_t step, Look&& look)
{
    int cuts = 0;
    for (uint64_t event = 1; world.stale_groups() > 0 && event < 400; event += step) {
        const ScrubStatus found = fill_columns(world);
        world.volume.power().arm(event);
        world.fs->step(true).ignore();
        world.volume.power().turn_on();
        world.fs.reset();
        world.volume.power_cut(world.prng);
        world.mount();
        ++cuts;
        look(found);
    }
    CHECK(world.stale_groups() == 0);
    return cuts;
}

// Times are whole seconds: a pass within the second of the last one keeps what that found in the list.
inline void let_a_second_pass()
{
    const timespec pause{1, 10'000'000};
    nanosleep(&pause, nullptr);
}

inline ScrubStatus scrub_all(StaleWorld& world)
{
    for (int step = 0; step < 1000; ++step)
        if (const ScrubStatus status = world.fs->scrub_step(); status.state == ScrubState::kFinished) {
            REQUIRE(world.fs->step(true).ok());
            return status;
        }
    FAIL("the scrub does not end");
    return {};
}

// The member is gone; a device with other content takes its place.
inline void replace(StaleWorld& world, uint32_t member)
{
    SimDevice& device = world.volume.member(member);
    std::vector<std::byte> block(kBlockBytes);
    for (uint64_t offset = 0; offset < device.size_bytes(); offset += kBlockBytes) {
        world.prng.fill(block.data(), block.size());
        device.poke(offset, block);
    }
    std::string why;
    REQUIRE(
        world.fs->committer.replace_member({member + 1}, std::make_unique<BorrowedDevice>(device), why).ok());
}

}  // namespace cowraid::test
