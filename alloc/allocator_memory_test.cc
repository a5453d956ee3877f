// SPDX-License-Identifier: MIT
// Which groups of the allocator are in memory: those in use, the others within a limit.
#include <doctest/doctest.h>

#include "tests/support/space_fixture.h"

using namespace cowraid;
using namespace cowraid::test;

TEST_CASE("bitmaps of groups keep to their limit of memory")
{
    SpaceFixture f;
    for (uint64_t index = 1; index <= 4; ++index)
        f.add({index * kGiB}, ProfileId::kRaid5, 2, 64 * kKiB, 1000, kGroupData);
    f.take(32000 * 4, kOne);  // all of them; open changes are not dropped
    f.commit(kOne, {1});
    const uint64_t all = f.allocator.evict_idle(~uint64_t{0});
    REQUIRE(f.allocator.evict_idle(0) == 0);
    f.allocator.set_memory_limit(all);  // about half as much as is asked for before it is known
    for (uint64_t round = 0; round < 3; ++round)
        for (uint64_t index = 1; index <= 4; ++index) {
            CHECK(*f.allocator.is_used({index * kGiB}));
            CHECK(f.allocator.evict_idle(~uint64_t{0}) <= all);
        }
    CHECK(f.disk.loads > 8);

    // Larger than the limit and than any usual one: it offers nothing, and the others go on.
    f.add({kTiB}, ProfileId::kRaid5, 2, 64 * kKiB, 5000000, kGroupData);
    CHECK(f.allocator.is_used({kTiB}).err() == Err::kNoMemory);
    CHECK(f.refused(10));
    REQUIRE(f.allocator.free_blocks({kGiB}, 32, kTwo).ok());
    f.commit(kTwo, {2});
    CHECK(f.take(10, {3})[0].group_address.value == kGiB);

    // A commit that changes more of them than the limit allows is made all the same.
    f.allocator.evict_idle(0);
    f.allocator.set_memory_limit(all / 2);
    for (uint64_t index = 1; index <= 4; ++index)
        REQUIRE(f.allocator.free_blocks({index * kGiB + kMiB}, 64, {5}).ok());
    f.commit({5}, {5});
    for (uint64_t index = 1; index <= 4; ++index)
        CHECK_FALSE(*f.allocator.is_used({index * kGiB + kMiB}));
}

TEST_CASE("a limit of memory that open changes use up keeps nobody from room that was there")
{
    SpaceFixture f;
    for (uint64_t index = 1; index <= 5; ++index)
        f.add({index * kGiB}, ProfileId::kRaid5, 2, 64 * kKiB, 1000, kGroupData);
    f.take(32000 * 5, kOne);
    f.commit(kOne, {1});
    // In the fifth one row of each stripe comes free, and half of another.
    for (uint64_t stripe = 0; stripe < 1000; ++stripe)
        for (const uint64_t block : {0, 16, 17})
            REQUIRE(f.allocator.free_blocks({5 * kGiB + (stripe * 32 + block) * kBlockBytes}, 1, kTwo).ok());
    f.commit(kTwo, {2});
    const uint64_t all = f.allocator.evict_idle(~uint64_t{0});
    REQUIRE(f.allocator.evict_idle(0) == 0);
    for (uint64_t index = 1; index <= 4; ++index) {
        CHECK(*f.allocator.is_used({index * kGiB}));
        REQUIRE(f.allocator.free_blocks({index * kGiB}, 64, kThree).ok());
    }
    f.allocator.set_memory_limit(all / 5 * 2);
    const auto check_offer = [&] {
        const SpaceNumbers numbers = f.allocator.numbers(kGroupData);
        CHECK(numbers.free_row_blocks == 2000);
        CHECK(numbers.partial_row_blocks == 1000);
        CHECK_FALSE(f.allocator.numbers_of({5 * kGiB})->broken);
    };
    check_offer();
    // Who needs no room waits for a commit.
    CHECK(f.allocator.is_used({5 * kGiB}).err() == Err::kNoMemory);
    check_offer();
    Allocator::HoldWalk walk;
    std::vector<StripeRun> held;
    CHECK(f.allocator.hold_stripes({5 * kGiB}, Allocator::Hold::kAll, 1, 100, walk, held) == Err::kNoMemory);
    check_offer();
    std::vector<BlockRun> live;
    CHECK(f.allocator.live_blocks({5 * kGiB}, 10, live) == Err::kNoMemory);
    check_offer();

    SUBCASE("recovery of rows after a crash")
    {
        CHECK_FALSE(*f.allocator.is_used({5 * kGiB}, Allocator::Ask::kInAnyCase));
        CHECK(*f.allocator.is_used({5 * kGiB + kBlockBytes}, Allocator::Ask::kInAnyCase));
        check_offer();
    }
    SUBCASE("free rows")
    {
        CHECK(f.take(10, kThree)[0].group_address.value == 5 * kGiB);
    }
    SUBCASE("partial rows")
    {
        std::vector<BlockRun> runs;
        CHECK(f.allocator.allocate_in_partial_rows(7, kThree, runs) == 7);
        for (const BlockRun& run : runs)
            CHECK(run.address.value >= 5 * kGiB);
    }
    f.commit(kThree, {3});
    CHECK(f.allocator.evict_idle(0) == 0);
    CHECK_FALSE(*f.allocator.is_used({5 * kGiB + (999 * 32 + 17) * kBlockBytes}));
}

TEST_CASE("one allocation out of more groups than the limit of memory holds comes to its end")
{
    SpaceFixture f;
    for (uint64_t index = 1; index <= 4; ++index)
        f.add({index * kGiB}, ProfileId::kRaid5, 2, 64 * kKiB, 1000, kGroupData);
    f.take(1, kOne);
    f.commit(kOne, {1});
    const uint64_t one = f.allocator.evict_idle(~uint64_t{0});
    REQUIRE(f.allocator.evict_idle(0) == 0);
    for (const uint64_t limit : {one / 2, one * 5 / 2}) {
        f.allocator.set_memory_limit(limit);
        std::vector<RowRegion> regions;
        CHECK(f.allocator.allocate(Stream::kData, 1, 32000 * 4 - 1, kTwo, regions) == Err::kNoSpace);
        CHECK(f.allocator.evict_idle(limit) <= limit);
    }
    CHECK(f.take(32000 * 3 + 10, kTwo).size() >= 4);
    CHECK(f.allocator.evict_idle(0) == 4 * one);
    f.commit(kTwo, {2});
    CHECK(f.allocator.evict_idle(0) == 0);
}

TEST_CASE("the usual largest group has its bitmaps in memory whatever the limit is, one at a time")
{
    SpaceFixture f;
    // 240 members, columns of 1 GiB; an eighth of 128 MiB.
    f.add({kTiB}, ProfileId::kRaid6, 238, 64 * kKiB, 16384, kGroupData);
    f.add({2 * kTiB}, ProfileId::kRaid6, 238, 64 * kKiB, 16384, kGroupData);
    f.allocator.set_memory_limit(16 * kMiB);
    CHECK(f.take(10, kOne)[0].group_address.value == kTiB);
    f.commit(kOne, {1});
    for (const uint64_t at : {2 * kTiB, kTiB, 2 * kTiB}) {
        CHECK(f.allocator.is_used({at}).ok());
        CHECK(f.allocator.evict_idle(~uint64_t{0}) < 32 * kMiB);
    }
    CHECK(f.allocator.numbers(kGroupData).free_row_blocks > 2 * 238 * 16384 * 15);
}

TEST_CASE("what was freed in a group that is not in memory is pinned")
{
    SpaceFixture f;
    f.add(kFirst, ProfileId::kRaid5, 2, 64 * kKiB, 8);
    f.take(32, kOne);
    f.commit(kOne, {1});
    CHECK(f.allocator.evict_idle(0) == 0);
    REQUIRE(f.allocator.free_blocks(kFirst + 8 * kBlockBytes, 3, kTwo).ok());
    REQUIRE(f.allocator.free_blocks(kFirst + 2 * kBlockBytes, 2, kTwo).ok());
    REQUIRE(f.allocator.free_blocks(kFirst + 4 * kBlockBytes, 1, kThree).ok());
    std::vector<BlockRun> runs;
    CHECK(f.allocator.live_in({kFirst, 16}, runs) == Err::kBusy);
    const auto check_pinned = [&] {
        runs.clear();
        CHECK(f.allocator.pinned_in({kFirst + 3 * kBlockBytes, 7}, runs).ok());
        REQUIRE(runs.size() == 2);
        CHECK((runs[0].address == kFirst + 3 * kBlockBytes && runs[0].block_count == 2));
        CHECK((runs[1].address == kFirst + 8 * kBlockBytes && runs[1].block_count == 2));
    };
    const uint64_t loads = f.disk.loads;
    check_pinned();
    CHECK(f.disk.loads == loads);
    CHECK(f.allocator.is_used(kFirst).ok());  // loads it
    CHECK(f.disk.loads == loads + 1);
    check_pinned();
}

TEST_CASE("only idle groups are evicted, the longest unused first")
{
    SpaceFixture f;
    for (uint64_t index = 1; index <= 3; ++index) {
        f.add({index * kGiB}, ProfileId::kRaid5, 2, 64 * kKiB, 100, kGroupData);
        f.take(3200, kOne);  // fills it
    }
    CHECK(f.allocator.evict_idle(0) > 0);
    f.commit(kOne, {1});
    CHECK(f.allocator.evict_idle(1 * kMiB) > 0);
    CHECK(*f.allocator.is_used({kGiB}));  // now the one used last
    const uint64_t all = f.allocator.evict_idle(1 * kMiB);
    CHECK(f.allocator.evict_idle(all - 1) == all / 3 * 2);
    const uint64_t loads = f.disk.loads;
    CHECK(*f.allocator.is_used({kGiB + 100 * kBlockBytes}));
    CHECK(*f.allocator.is_used({3 * kGiB}));
    CHECK(f.disk.loads == loads);
    CHECK(*f.allocator.is_used({2 * kGiB}));
    CHECK(f.disk.loads == loads + 1);
    CHECK(f.allocator.is_used({4 * kGiB}).err() == Err::kInvalid);
    REQUIRE(f.allocator.free_blocks({2 * kGiB}, 3200, kTwo).ok());
    CHECK(f.allocator.evict_idle(0) == all / 3);
    f.commit(kTwo, {2});
    CHECK(f.allocator.evict_idle(0) == 0);
    CHECK(f.take(3200, kThree)[0].group_address.value == 2 * kGiB);
}
