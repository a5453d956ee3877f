// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <vector>

#include "alloc/clean_policy.h"

using namespace cowraid;

namespace {

GroupNumbers group_of(uint64_t address, uint64_t live, uint64_t free_stripes = 0)
{
    GroupNumbers numbers{};
    numbers.address = {address};
    numbers.total_blocks = 1000;
    numbers.live_blocks = live;
    numbers.free_row_blocks = numbers.free_stripe_blocks = free_stripes;
    return numbers;
}

const JoinPolicy kJoin(kLoopCost, 4, 1, 65536);
const CleanPressure kScarce{.free_blocks = 10, .total_blocks = 1000};
const CleanPressure kPlenty{.free_blocks = 900, .total_blocks = 1000};

}  // namespace

TEST_CASE("the group that gives most for what is moved is emptied first")
{
    const CleanPolicy policy(kJoin, 65536);
    std::vector<GroupNumbers> groups{group_of(1, 600), group_of(2, 300), group_of(3, 500)};
    CHECK(policy.choose(groups, kScarce) == VolumeAddress{2});
    // Nearly nothing in it, but all the rest of it is free already.
    groups.push_back(group_of(4, 100, 880));
    CHECK(policy.choose(groups, kScarce) == VolumeAddress{2});
    // One stripe would come free.
    groups.push_back(group_of(5, 1, 990));
    CHECK(policy.choose(groups, kScarce) == VolumeAddress{2});
    groups[1].planned = true;
    CHECK(policy.choose(groups, kScarce) == VolumeAddress{3});
    groups[2].broken = true;
    CHECK(policy.choose(groups, kScarce) == VolumeAddress{1});
}

TEST_CASE("nothing is moved while there is room, or where it costs more than it gives")
{
    const CleanPolicy policy(kJoin, 65536);
    CHECK(policy.live_max() > 0.5);
    CHECK(policy.live_max() < 0.95);
    const std::vector<GroupNumbers> groups{group_of(1, 400)};
    CHECK(!policy.choose(groups, kPlenty));
    CHECK(policy.choose(groups, kScarce) == VolumeAddress{1});
    const std::vector<GroupNumbers> full{group_of(1, 1000), group_of(2, 990)};
    CHECK(!policy.choose(full, kScarce));
    CHECK(CleanPolicy::choose_any(full) == VolumeAddress{2});
    CHECK(!CleanPolicy::choose_any(std::vector<GroupNumbers>{group_of(1, 1000), group_of(2, 0, 1000)}));
    CHECK(!policy.choose({}, kScarce));
}

TEST_CASE("an idle volume is cleaned a little earlier, where that is cheap")
{
    const CleanPolicy policy(kJoin, 65536);
    CleanPressure pressure{.free_blocks = 200, .total_blocks = 1000};
    const std::vector<GroupNumbers> cheap{group_of(1, 300)};
    const std::vector<GroupNumbers> dear{group_of(1, 600)};
    CHECK(!policy.choose(cheap, pressure));
    pressure.idle = true;
    CHECK(policy.choose(cheap, pressure) == VolumeAddress{1});
    CHECK(!policy.choose(dear, pressure));
}

TEST_CASE("an empty group goes only when its slots are wanted")
{
    const CleanPolicy policy(kJoin, 65536);
    const std::vector<GroupNumbers> groups{group_of(1, 0, 1000), group_of(2, 400)};
    CHECK(policy.choose(groups, kScarce) == VolumeAddress{2});
    CleanPressure pressure = kPlenty;
    pressure.metadata_short = true;
    CHECK(policy.choose(groups, pressure) == VolumeAddress{1});
}

TEST_CASE("the scarcer free stripes are, the larger the share of the cleaner")
{
    CHECK(CleanPolicy::urgency(kPlenty) == 0);
    CHECK(CleanPolicy::urgency({.free_blocks = 0, .total_blocks = 1000}) == 1);
    uint64_t last = CleanPolicy::pause_us(1000, kPlenty);
    CHECK(last == 15000);
    for (uint64_t free = 120; free > 0; free -= 10) {
        const uint64_t pause = CleanPolicy::pause_us(1000, {.free_blocks = free, .total_blocks = 1000});
        CHECK(pause < last);
        last = pause;
    }
    CHECK(CleanPolicy::pause_us(1000, {.free_blocks = 0, .total_blocks = 1000}) == 1000);
    CHECK(CleanPolicy::pause_us(1000, {.free_blocks = 900, .total_blocks = 1000, .idle = true}) == 1000);
    CHECK(CleanPolicy::step_blocks(64, CleanPolicy::kStepBytes) == 512);
    CHECK(CleanPolicy::step_blocks(48, CleanPolicy::kStepBytes) == 480);
    CHECK(CleanPolicy::step_blocks(4096, CleanPolicy::kStepBytes) == 4096);
}
