// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include "alloc/join_policy.h"

using namespace cowraid;

TEST_CASE("costs of joining and of cleaning, against figures worked out by hand")
{
    // 41 us and 0.285 us/KiB, RAID5 of 7+1 and RAID6 of 6+2.
    const JoinPolicy raid5({41, 0.285}, 7, 1, 65536);
    const JoinPolicy raid6({41, 0.285}, 6, 2, 65536);
    CHECK(raid5.join_us(4) == doctest::Approx(171).epsilon(0.01));
    CHECK(raid5.join_us(32) == doctest::Approx(213).epsilon(0.02));
    CHECK(raid6.join_us(4) == doctest::Approx(258).epsilon(0.01));
    CHECK(raid5.clean_us(32, 0) == doctest::Approx(13.4).epsilon(0.01));
    CHECK(raid5.clean_us(32, 0.808) == doctest::Approx(118).epsilon(0.03));
    CHECK(raid5.crossover(32) == doctest::Approx(0.943).epsilon(0.005));
    CHECK(raid6.crossover(32) == doctest::Approx(0.959).epsilon(0.005));
    CHECK(raid5.crossover(4) > 0.98);
}

TEST_CASE("another kind of member has another crossover")
{
    const JoinPolicy disk(kDiskCost, 7, 1, 65536);
    const JoinPolicy loop(kLoopCost, 7, 1, 65536);
    const JoinPolicy flash(kFlashCost, 7, 1, 65536);
    MESSAGE("32 KiB, RAID5 7+1: joining is cheaper above ", disk.crossover(32), " (disk), ",
            loop.crossover(32), " (loop), ", flash.crossover(32), " (flash)");
    CHECK(disk.crossover(32) > loop.crossover(32));
    CHECK(disk.crossover(32) > 0.97);
    CHECK(loop.crossover(32) < 0.9);
    CHECK(flash.crossover(32) == doctest::Approx(0.92).epsilon(0.06));
    CHECK(disk.crossover(4) > disk.crossover(64));
}

TEST_CASE("tails join rows where space is scarce, never more than partial rows take")
{
    const JoinPolicy policy(kLoopCost, 3, 1, 65536);
    SpaceNumbers numbers = {};
    numbers.used_blocks = 5000;
    numbers.free_row_blocks = 5000;
    numbers.partial_row_blocks = 100;
    CHECK(policy.blocks_to_join(numbers, 0, 1) == 0);
    numbers.used_blocks = 100000;
    numbers.free_row_blocks = 300;
    CHECK(policy.blocks_to_join(numbers, 0, 1) == 1);
    CHECK(policy.blocks_to_join(numbers, 0, 48) == 0);  // a stripe
    CHECK(policy.blocks_to_join(numbers, 0, 2 * 48 + 7) == 7);
    CHECK(policy.blocks_to_join(numbers, 1000000, 1) == 0);
    numbers.partial_row_blocks = 3;
    CHECK(policy.blocks_to_join(numbers, 0, 7) == 3);
    numbers.partial_row_blocks = 0;
    CHECK(policy.blocks_to_join(numbers, 0, 7) == 0);
}
