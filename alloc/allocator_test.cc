// SPDX-License-Identifier: MIT
// What the allocator promises, case by case.
#include <doctest/doctest.h>

#include <algorithm>

#include "alloc/group_space.h"
#include "tests/support/space_fixture.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

void check_region(const RowRegion& region, uint64_t first_stripe, uint64_t stripe_count, uint32_t first_row,
                  uint32_t row_count, uint64_t used_blocks)
{
    CHECK(region.first_stripe == first_stripe);
    CHECK(region.stripe_count == stripe_count);
    CHECK(region.first_row == first_row);
    CHECK(region.row_count == row_count);
    CHECK(region.used_blocks == used_blocks);
}

uint64_t rows_of(const std::vector<RowRegion>& regions)
{
    uint64_t rows = 0;
    for (const RowRegion& region : regions)
        rows += region.stripe_count * region.row_count;
    return rows;
}

}  // namespace

TEST_CASE("full stripes of an empty group are one region, and the next call goes on behind them")
{
    for (const uint64_t chunk : {4 * kKiB, 16 * kKiB, 64 * kKiB, kMiB}) {
        for (const uint32_t k : {1u, 2u, 3u, 14u}) {
            CAPTURE(chunk);
            CAPTURE(k);
            SpaceFixture f;
            f.add(kFirst, ProfileId::kRaid6, k, chunk, 200);
            const uint64_t stripe_blocks = chunk / kBlockBytes * k;
            const auto rows = static_cast<uint32_t>(chunk / kBlockBytes);
            const auto regions = f.take(100 * stripe_blocks);
            REQUIRE(regions.size() == 1);
            check_region(regions[0], 0, 100, 0, rows, 100 * stripe_blocks);
            CHECK(regions[0].block_address(0) == kFirst);
            CHECK(regions[0].block_address(stripe_blocks) == kFirst + chunk * k);
            const auto more = f.take(7 * stripe_blocks);
            REQUIRE(more.size() == 1);
            check_region(more[0], 100, 7, 0, rows, 7 * stripe_blocks);
            CHECK(f.allocator.statistics().full_stripes == 107);
            CHECK(f.allocator.statistics().pad_blocks == 0);
        }
    }
}

TEST_CASE("the tail takes as few rows as possible and the next call continues there")
{
    SpaceFixture f;
    f.add(kFirst, ProfileId::kRaid5, 4, 64 * kKiB, 50);  // stripes of 64 blocks, 16 rows
    auto regions = f.take(2 * 64 + 5);
    REQUIRE(regions.size() == 2);
    check_region(regions[0], 0, 2, 0, 16, 128);
    check_region(regions[1], 2, 1, 0, 2, 5);
    // Down the first column, then the next one.
    CHECK(regions[1].block_address(1) - regions[1].block_address(0) == kBlockBytes);
    CHECK(regions[1].block_address(2) - regions[1].block_address(0) == 64 * kKiB);
    regions = f.take(9);
    REQUIRE(regions.size() == 1);
    check_region(regions[0], 2, 1, 2, 3, 9);
    // Whole stripes go behind the open one, the tail still into it.
    regions = f.take(3 * 64 + 4);
    REQUIRE(regions.size() == 2);
    check_region(regions[0], 3, 3, 0, 16, 192);
    check_region(regions[1], 2, 1, 5, 1, 4);
    // Ten rows are left of it; thirteen are needed.
    regions = f.take(50);
    REQUIRE(regions.size() == 2);
    check_region(regions[0], 2, 1, 6, 10, 40);
    check_region(regions[1], 6, 1, 0, 3, 10);
    const AllocationStatistics statistics = f.allocator.statistics();
    CHECK(statistics.full_stripes == 5);
    CHECK(statistics.full_rows == 2 + 3 + 1 + 10 + 3);
    CHECK(statistics.pad_blocks == 3 + 3 + 2);
}

TEST_CASE("a tail that fills every row of a stripe joins the stripes before it")
{
    SpaceFixture f;
    f.add(kFirst, ProfileId::kRaid5, 4, 64 * kKiB, 50);
    const auto regions = f.take(3 * 64 + 62);
    REQUIRE(regions.size() == 1);
    check_region(regions[0], 0, 4, 0, 16, 254);
    check_region(f.take(1)[0], 4, 1, 0, 1, 1);
}

TEST_CASE("streams do not share stripes while there are free ones")
{
    SpaceFixture f;
    f.add(kFirst, ProfileId::kRaid5, 3, 64 * kKiB, 50);
    check_region(f.take(1, kOne, Stream::kData)[0], 0, 1, 0, 1, 1);
    check_region(f.take(1, kOne, Stream::kMetadata, 4)[0], 1, 1, 0, 4, 4);
    check_region(f.take(1, kOne, Stream::kSystem, 4)[0], 2, 1, 0, 4, 4);
    check_region(f.take(2, kOne, Stream::kData)[0], 0, 1, 1, 1, 2);
    check_region(f.take(4, kOne, Stream::kMetadata, 4)[0], 1, 1, 4, 8, 16);
    check_region(f.take(1, kOne, Stream::kSystem, 4)[0], 2, 1, 4, 4, 4);
}

TEST_CASE("streams take groups of their content only, open ones only")
{
    SpaceFixture f;
    f.add({kGiB}, ProfileId::kRaid1, 1, 64 * kKiB, 4, kGroupMetadata);
    f.add({2 * kGiB}, ProfileId::kRaid5, 3, 64 * kKiB, 4, kGroupData);
    f.add({3 * kGiB}, ProfileId::kRaid1, 1, 64 * kKiB, 4, kGroupSystem | kGroupMetadata);
    CHECK(f.take(1, kOne, Stream::kData)[0].group_address.value == 2 * kGiB);
    CHECK(f.take(1, kOne, Stream::kMetadata)[0].group_address.value == kGiB);
    CHECK(f.take(1, kOne, Stream::kSystem)[0].group_address.value == 3 * kGiB);
    f.allocator.set_group_state({kGiB}, Allocator::GroupState::kClosed);
    CHECK(f.take(1, kOne, Stream::kMetadata)[0].group_address.value == 3 * kGiB);
    f.allocator.set_group_state({2 * kGiB}, Allocator::GroupState::kPlanned);
    CHECK(f.refused(1));
    CHECK(f.allocator.numbers(kGroupData).free_row_blocks == 0);
    CHECK(f.allocator.numbers(kGroupData).total_blocks == 4 * 48);
    f.allocator.set_group_state({2 * kGiB}, Allocator::GroupState::kOpen);
    CHECK(f.take(4 * 48 - 3, kOne, Stream::kData).size() == 2);
    CHECK(f.refused(1));
}

TEST_CASE("groups of one content come before those of several, avoided or not")
{
    SpaceFixture f;
    f.add({kGiB}, ProfileId::kRaid1, 1, 64 * kKiB, 4, kGroupMetadata | kGroupSystem);
    CHECK(f.take(1, kOne, Stream::kMetadata)[0].group_address.value == kGiB);
    CHECK(f.take(1, kOne, Stream::kSystem)[0].group_address.value == kGiB);
    f.add({2 * kGiB}, ProfileId::kRaid5, 3, 64 * kKiB, 4, kGroupMetadata);
    f.add({3 * kGiB}, ProfileId::kRaid1, 1, 64 * kKiB, 4, kGroupSystem);
    for (const uint64_t one : {2 * kGiB, 3 * kGiB})
        f.allocator.set_avoided({one}, true);
    const uint64_t files = f.allocator.numbers(kGroupMetadata | kGroupSystem).free_row_blocks -
                           f.allocator.numbers(kGroupSystem).free_row_blocks;
    const auto regions = f.take(files, kOne, Stream::kMetadata);
    CHECK(std::all_of(regions.begin(), regions.end(),
                      [](const RowRegion& region) { return region.group_address.value == 2 * kGiB; }));
    CHECK(f.take(1, kOne, Stream::kSystem)[0].group_address.value == 3 * kGiB);
    // What files left of the group for both suffices for the others.
    const uint64_t rest = f.allocator.numbers(kGroupSystem).free_row_blocks;
    CHECK(f.take(rest, kOne, Stream::kSystem)[0].group_address.value == 3 * kGiB);
}

TEST_CASE("an allocation goes on in the next group, all or nothing")
{
    SpaceFixture f;
    f.add({kGiB}, ProfileId::kRaid5, 2, 64 * kKiB, 4);
    f.add({2 * kGiB}, ProfileId::kRaid5, 3, 64 * kKiB, 4);
    const uint64_t room = 4 * 32 + 4 * 48;
    CHECK(f.refused(room + 1));
    CHECK(f.allocator.numbers(kGroupData).used_blocks == 0);
    CHECK(f.allocator.statistics().full_stripes == 0);
    const auto regions = f.take(room);
    REQUIRE(regions.size() == 2);
    check_region(regions[0], 0, 4, 0, 16, 128);
    check_region(regions[1], 0, 4, 0, 16, 192);
    CHECK(f.refused(1));
}

TEST_CASE("a fragmented group hands out every free row")
{
    SpaceFixture f;
    const uint64_t stripes = 40;
    f.add(kFirst, ProfileId::kRaid6, 3, 64 * kKiB, stripes);
    f.take(stripes * 48);
    f.commit(kOne, {1});
    // Rows 1, 4, 5, 6 and 11 of every stripe: three columns each.
    const std::pair<uint64_t, uint64_t> holes[] = {{1, 1}, {4, 3}, {11, 1}};
    for (uint64_t stripe = 0; stripe < stripes; ++stripe) {
        for (uint64_t column = 0; column < 3; ++column) {
            for (const auto& [row, count] : holes)
                REQUIRE(
                    f.allocator
                        .free_blocks(kFirst + (stripe * 48 + column * 16 + row) * kBlockBytes, count, kTwo)
                        .ok());
        }
    }
    CHECK(f.refused(1));  // pinned
    CHECK(f.allocator.numbers(kGroupData).pinned_blocks == stripes * 15);
    f.collect(kTwo, {2});
    CHECK(f.refused(1));
    f.allocator.release(kTwo, {2});
    CHECK(f.allocator.numbers(kGroupData).free_row_blocks == stripes * 15);
    CHECK(f.allocator.numbers(kGroupData).free_stripe_blocks == 0);
    CHECK(f.refused(1, 4));
    auto regions = f.take(7);
    REQUIRE(regions.size() == 1);
    CHECK(regions[0].row_count == 3);
    CHECK(f.refused(stripes * 15 - 9 + 1));
    regions = f.take(stripes * 15 - 9);
    CHECK(rows_of(regions) == stripes * 5 - 3);
    CHECK(f.allocator.numbers(kGroupData).free_row_blocks == 0);
    CHECK(f.refused(1));
}

TEST_CASE("half a row freed is no free row")
{
    SpaceFixture f;
    f.add(kFirst, ProfileId::kRaid5, 3, 16 * kKiB, 1);
    f.take(12);
    f.commit(kOne, {1});
    REQUIRE(f.allocator.free_blocks(kFirst, 8, kTwo).ok());  // columns 0 and 1
    f.commit(kTwo, {2});
    CHECK(f.refused(1));
    REQUIRE(f.allocator.free_blocks(kFirst + 9 * kBlockBytes, 1, kThree).ok());
    f.commit(kThree, {3});
    check_region(f.take(3)[0], 0, 1, 1, 1, 3);
    CHECK(f.refused(1));
}

TEST_CASE("units of four blocks stay in one column, or in whole stripes of short chunks")
{
    for (const uint64_t chunk : {4 * kKiB, 8 * kKiB, 16 * kKiB, 64 * kKiB}) {
        for (const uint32_t k : {1u, 3u, 5u}) {
            CAPTURE(chunk);
            CAPTURE(k);
            SpaceFixture f;
            f.add(kFirst, ProfileId::kRaid6, k, chunk, 100);
            const auto rows = static_cast<uint32_t>(chunk / kBlockBytes);
            uint64_t taken = 0;
            for (const uint64_t units : {1u, 2u, 7u, 1u, 13u}) {
                for (const RowRegion& region : f.take(units, kOne, Stream::kMetadata, 4)) {
                    if (rows >= 4)
                        CHECK(region.row_count % 4 == 0);
                    else
                        CHECK(region.row_count == rows);
                    CHECK(region.used_blocks % 4 == 0);
                    for (uint64_t block = 0; block < region.used_blocks; block += 4)
                        CHECK(region.block_address(block + 3) - region.block_address(block) ==
                              3 * kBlockBytes);
                    taken += region.used_blocks;
                }
            }
            CHECK(taken == 4 * 24);
            CHECK(f.allocator.numbers(kGroupData).used_blocks == taken);
        }
    }
}

TEST_CASE("a commit records its own transaction and nothing of the open one")
{
    SpaceFixture f;
    const GroupRecord group = f.add(kFirst, ProfileId::kRaid5, 4, 64 * kKiB, 64);
    const auto first = f.take(64, kOne);
    const auto second = f.take(64, kTwo);
    REQUIRE(f.allocator.free_blocks(first[0].block_address(3), 2, kTwo).ok());
    const auto windows = f.collect(kOne, {1});
    REQUIRE(windows.size() == 1);
    CHECK(windows[0].used_count == 64);
    CHECK(windows[0].written);
    CHECK(f.disk.is_used(group, 3));
    CHECK_FALSE(f.disk.is_used(group, 64));
    CHECK(f.disk.usage(group).used_blocks == 64);
    CHECK(f.disk.usage(group).free_stripes == 63);
    // The commit allocates for itself while it collects.
    f.take(1, kOne, Stream::kMetadata, 4);
    CHECK(f.collect(kOne, {1}).size() == 1);
    CHECK(f.collect(kOne, {1}).empty());
    CHECK(f.disk.usage(group).used_blocks == 68);
    f.allocator.release(kOne, {1});
    CHECK(f.allocator.numbers(kGroupData).pinned_blocks == 2);
    f.commit(kTwo, {2});
    CHECK(f.disk.usage(group).used_blocks == 68 - 2 + 64);
    CHECK_FALSE(f.disk.is_used(group, 3));
    CHECK(f.allocator.numbers(kGroupData).pinned_blocks == 0);
}

TEST_CASE("what cancels out between two collects of a commit is not recorded again")
{
    SpaceFixture f;
    f.add(kFirst, ProfileId::kRaid5, 2, 64 * kKiB, 32);
    f.take(40, kOne);
    CHECK(f.collect(kOne, {1}).size() == 1);
    const auto regions = f.take(2, kOne);
    REQUIRE(f.allocator.free_blocks(regions[0].block_address(0), 1, kOne).ok());
    REQUIRE(f.allocator.free_blocks(regions[0].block_address(1), 1, kOne).ok());
    CHECK(f.collect(kOne, {1}).empty());
    f.take(2, kOne);
    CHECK(f.collect(kOne, {1}).size() == 1);
}

TEST_CASE("allocated and freed in one transaction: never recorded, pinned until release")
{
    SpaceFixture f;
    const GroupRecord group = f.add(kFirst, ProfileId::kRaid5, 2, 64 * kKiB, 1);
    const auto regions = f.take(32, kOne);
    REQUIRE(f.allocator.free_blocks(kFirst, 32, kOne).ok());
    CHECK(f.allocator.numbers(kGroupData).used_blocks == 0);
    CHECK(f.refused(1));
    const auto windows = f.collect(kOne, {5});
    REQUIRE(windows.size() == 1);
    CHECK(windows[0].used_count == 0);
    CHECK(windows[0].written);  // the rows were written, so a member that was away must catch up
    CHECK(f.disk.usage(group).used_blocks == 0);
    CHECK(f.refused(1));
    CHECK(f.allocator.empty_groups(kGroupData).empty());
    f.allocator.release(kOne, {5});
    CHECK(f.allocator.empty_groups(kGroupData).size() == 1);
    check_region(f.take(32, kTwo)[0], 0, 1, 0, 16, 32);
}

TEST_CASE("frees of a lower part are released alone, before those of lower numbers")
{
    SpaceFixture f;
    const GroupRecord group = f.add(kFirst, ProfileId::kRaid5, 2, 64 * kKiB, 1);
    constexpr TransactionId kRead{1, 2}, kUnread{1, 3}, kLast{1, 4};
    const auto free_row = [&](uint64_t row, TransactionId transaction) {
        for (const uint64_t column : {0, 1})
            REQUIRE(f.allocator.free_blocks(kFirst + (column * 16 + row) * kBlockBytes, 1, transaction).ok());
    };
    f.take(32, kOne);
    f.commit(kOne, {1});
    free_row(0, kRead);
    f.collect(kRead, {2});
    free_row(1, kLast);
    free_row(2, kUnread);
    CHECK(f.collect(kLast, {3}).size() == 1);
    CHECK(f.disk.usage(group).used_blocks == 26);
    CHECK(f.refused(1));
    f.allocator.release_only(kUnread);
    CHECK(f.allocator.numbers(kGroupData).pinned_blocks == 4);
    CHECK(f.allocator.numbers(kGroupData).free_row_blocks == 2);
    f.allocator.release(kRead, {2});
    CHECK(f.allocator.numbers(kGroupData).free_row_blocks == 4);
    f.allocator.release(kLast, {3});
    CHECK(f.allocator.numbers(kGroupData).free_row_blocks == 6);
}

TEST_CASE("a window written by a commit that is not released counts as written in the next one")
{
    SpaceFixture f;
    f.add(kFirst, ProfileId::kRaid5, 2, 64 * kKiB, 1);
    f.take(32, kOne);
    f.collect(kOne, {1});
    REQUIRE(f.allocator.free_blocks(kFirst, 1, kTwo).ok());
    const auto early = f.collect(kTwo, {2});
    REQUIRE(early.size() == 1);
    CHECK(early[0].written);
    f.allocator.release(kOne, {1});
    f.allocator.release(kTwo, {2});
    REQUIRE(f.allocator.free_blocks(kFirst + kBlockBytes, 1, kThree).ok());
    const auto late = f.collect(kThree, {3});
    REQUIRE(late.size() == 1);
    CHECK_FALSE(late[0].written);
    CHECK(late[0].last_write.value == 1);
}

TEST_CASE("freeing what is not used is refused, or dropped when the group was not in memory")
{
    SpaceFixture f;
    const GroupRecord group = f.add(kFirst, ProfileId::kRaid5, 2, 64 * kKiB, 8);
    f.take(32, kOne);
    CHECK(f.allocator.free_blocks(kFirst + 31 * kBlockBytes, 2, kOne) == Err::kCorrupt);
    CHECK(f.allocator.free_blocks({512}, 1, kOne) == Err::kCorrupt);
    CHECK(f.allocator.free_blocks(kFirst + 512, 1, kOne) == Err::kCorrupt);
    CHECK(f.allocator.free_blocks(kFirst + group.data_bytes(), 1, kOne) == Err::kCorrupt);
    CHECK(f.allocator.free_blocks(kFirst + 31 * kBlockBytes, ~uint64_t{0}, kOne) == Err::kCorrupt);
    REQUIRE(f.allocator.free_blocks(kFirst, 1, kOne).ok());
    CHECK(f.allocator.free_blocks(kFirst, 1, kOne) == Err::kCorrupt);
    f.commit(kOne, {1});

    CHECK(f.allocator.evict_idle(0) == 0);
    const uint64_t loads = f.disk.loads;
    CHECK(f.allocator.free_blocks(kFirst, 1, kTwo).ok());  // not used: found out later
    CHECK(f.allocator.free_blocks(kFirst + 8 * kBlockBytes, 3, kTwo).ok());
    CHECK(f.allocator.free_blocks(kFirst + 9 * kBlockBytes, 1, kTwo).ok());  // a second time
    CHECK(f.disk.loads == loads);
    CHECK(f.allocator.evict_idle(0) == 0);
    f.commit(kTwo, {2});
    CHECK(f.disk.loads == loads + 1);
    CHECK(f.disk.usage(group).used_blocks == 28);
    CHECK(f.allocator.numbers(kGroupData).used_blocks == 28);
    CHECK(f.allocator.numbers(kGroupData).pinned_blocks == 0);
}

TEST_CASE("what is given back leaves out what somebody freed who had it while it was free")
{
    const GroupRecord group = test_group(kFirst, ProfileId::kRaid5, 2, 64 * kKiB, 4, kGroupData);
    GroupSpace space(group.address, geometry_of(group));
    SpaceRequest request;
    request.units = 3 * 32;
    space.take_stripes(request);
    REQUIRE(request.regions.size() == 1);
    REQUIRE(space.end_life({40, 1}));
    CHECK(space.give_back(request.regions.front()) == 3 * 32 - 1);
    CHECK(space.free_stripes() == 3);
    const BlockRange freed{40, 1};
    space.release({&freed, 1});
    CHECK(space.free_stripes() == 4);
    CHECK(space.free_rows() == 4 * 16);
}

TEST_CASE("a group whose windows make no sense gives no space")
{
    const GroupRecord group = test_group(kFirst, ProfileId::kRaid5, 3, 64 * kKiB, 60, kGroupData);
    // Windows of 42 stripes, 2016 blocks.
    SpaceWindow good = {.group_address = kFirst, .block_count = 2016, .used_count = 1, .bitmap = {}};
    good.bitmap.assign(252, 0);
    good.bitmap[0] = 1;
    const GroupUsage usage = {kFirst, 1, 60 * 16 - 1, 59};
    enum class Damage { kNone, kStripe, kBeyond, kCount, kUsed, kBitmap, kBits, kTwice, kSummary, kRead };
    for (int kind = 0; kind <= static_cast<int>(Damage::kRead); ++kind) {
        CAPTURE(kind);
        const auto damage = static_cast<Damage>(kind);
        TestDisk disk;
        SpaceWindow window = good;
        GroupUsage summary = usage;
        window.first_stripe = damage == Damage::kStripe ? 1 : damage == Damage::kBeyond ? 84 : 0;
        window.block_count += damage == Damage::kCount ? 48 : 0;
        window.used_count += damage == Damage::kUsed ? 1 : 0;
        window.bitmap.resize(damage == Damage::kBitmap ? 251 : 252);
        window.bitmap[5] = damage == Damage::kBits ? 1 : 0;
        summary.free_rows += damage == Damage::kSummary ? 1 : 0;
        disk.fails = damage == Damage::kRead ? Status(Err::kIo) : Status();
        disk.windows[{kFirst.value, 0}] = window;
        if (damage == Damage::kTwice)
            disk.windows[{kFirst.value, 1}] = window;
        Allocator allocator(disk);
        allocator.add_group(group, summary, Allocator::GroupState::kOpen);
        std::vector<RowRegion> regions;
        const bool ok = allocator.allocate(Stream::kData, 1, 10, kOne, regions).ok();
        CHECK(ok == (damage == Damage::kNone));
        CHECK((allocator.numbers(kGroupData).free_row_blocks > 0) == ok);
        CHECK(allocator.is_used(kFirst).ok() == ok);
        CHECK(allocator.free_blocks(kFirst, 1, kOne).ok());
        std::vector<SpaceWindow> windows;
        std::vector<GroupUsage> usages;
        CHECK(allocator.collect(kOne, windows, usages).ok() == ok);
        CHECK(windows.empty() != ok);
        // What contradicts itself is read once, what cannot be read is tried again.
        CHECK((disk.loads == 1) == (damage != Damage::kRead));
    }
}

TEST_CASE("bits behind the last block of a window are refused")
{
    for (const uint8_t bits : {uint8_t{0x01}, uint8_t{0x21}, uint8_t{0x81}}) {
        CAPTURE(bits);
        TestDisk disk;
        SpaceWindow window = {.group_address = kFirst, .block_count = 5, .used_count = 1, .bitmap = {}};
        window.bitmap.push_back(bits);
        disk.windows[{kFirst.value, 0}] = window;
        Allocator allocator(disk);
        allocator.add_group(test_group(kFirst, ProfileId::kRaid1, 1, 4 * kKiB, 5, kAnything),
                            {kFirst, 1, 4, 4}, Allocator::GroupState::kOpen);
        CHECK(allocator.is_used(kFirst).ok() == (bits == 0x01));
    }
}

TEST_CASE("groups leave when nothing is used or pinned")
{
    SpaceFixture f;
    f.add({kGiB}, ProfileId::kRaid5, 2, 64 * kKiB, 4);
    f.add({2 * kGiB}, ProfileId::kRaid5, 2, 64 * kKiB, 4);
    const auto regions = f.take(1);
    REQUIRE(regions[0].group_address.value == kGiB);
    CHECK(f.allocator.remove_group({kGiB}) == Err::kBusy);
    CHECK(f.allocator.empty_groups(kGroupData) == std::vector<VolumeAddress>{{2 * kGiB}});
    REQUIRE(f.allocator.free_blocks({kGiB}, 1, kOne).ok());
    CHECK(f.allocator.remove_group({kGiB}) == Err::kBusy);
    f.commit(kOne, {1});
    CHECK(f.allocator.remove_group({kGiB}).ok());
    CHECK(f.allocator.remove_group({kGiB}) == Err::kNotFound);
    CHECK(f.allocator.remove_group({2 * kGiB + 1}) == Err::kNotFound);
    CHECK(f.allocator.numbers(kGroupData).total_blocks == 128);
    CHECK(f.take(1, kTwo)[0].group_address.value == 2 * kGiB);
}

TEST_CASE("when free stripes are scarce, tails go into used ones")
{
    SpaceFixture f;
    f.add(kFirst, ProfileId::kRaid5, 2, 64 * kKiB, 320);
    f.take(316 * 32, kOne);
    REQUIRE(f.allocator.free_blocks(kFirst + 4 * kBlockBytes, 3, kOne).ok());
    REQUIRE(f.allocator.free_blocks(kFirst + 20 * kBlockBytes, 3, kOne).ok());
    f.commit(kOne, {1});
    check_region(f.take(5, kTwo)[0], 0, 1, 4, 3, 5);
    check_region(f.take(5, kTwo)[0], 316, 1, 0, 3, 5);
}

TEST_CASE("allocator: sums of avoided groups, and of those that are open or planned, follow their states")
{
    SpaceFixture fixture;
    Allocator& allocator = fixture.allocator;
    const GroupRecord one = fixture.add(kFirst, ProfileId::kRaid5, 3, 16 * kKiB, 8);
    const GroupRecord other = fixture.add({kFirst.value + 64 * kMiB}, ProfileId::kRaid5, 3, 16 * kKiB, 4);
    const auto sums_hold = [&] {
        uint64_t avoided = 0, whole = 0;
        for (const GroupNumbers& numbers : allocator.group_numbers(kAnything)) {
            whole += numbers.degraded || numbers.closed ? 0 : numbers.total_blocks;
            avoided += numbers.open() && numbers.address == one.address ? numbers.free_row_blocks : 0;
        }
        CHECK(allocator.numbers(kAnything).avoided_row_blocks == avoided);
        CHECK(allocator.numbers(kAnything).whole_blocks == whole);
        return avoided;
    };
    CHECK(allocator.numbers(kAnything).avoided_row_blocks == 0);
    allocator.set_avoided(one.address, true);
    CHECK(sums_hold() == 8 * 3 * 4);
    fixture.take(4 * 3 * 4 + 3 * 4);  // goes into the other one first
    CHECK(sums_hold() == 7 * 3 * 4);
    allocator.degrade_group(one.address);
    CHECK(sums_hold() == 0);
    allocator.set_group_state(one.address, Allocator::GroupState::kOpen);
    CHECK(sums_hold() == 7 * 3 * 4);
    allocator.set_group_state(other.address, Allocator::GroupState::kClosed);
    CHECK(sums_hold() == 7 * 3 * 4);
    allocator.set_avoided(one.address, false);
    CHECK(allocator.numbers(kAnything).avoided_row_blocks == 0);
}

TEST_CASE("stripes that are out of use are nobody's, and are found again where they were not discarded")
{
    using Hold = Allocator::Hold;
    using LetGo = Allocator::LetGo;
    SpaceFixture f;
    const GroupRecord group = f.add(kFirst, ProfileId::kRaid5, 4, 64 * kKiB, 50);  // stripes of 64 blocks
    const auto hold = [&](Hold which, uint64_t shortest, uint64_t most) {
        Allocator::HoldWalk walk;
        std::vector<StripeRun> runs;
        REQUIRE(f.allocator.hold_stripes(group.address, which, shortest, most, walk, runs).ok());
        return runs;
    };
    CHECK(hold(Hold::kFreed, 1, 100).empty());  // nothing became free
    f.take(50 * 64);
    f.commit(kOne, {1});
    CHECK(hold(Hold::kAll, 1, 100).empty());
    const auto free_stripes = [&](uint64_t first, uint64_t count) {
        const VolumeAddress address = group.address + first * 64 * kBlockBytes;
        REQUIRE(f.allocator.free_blocks(address, count * 64, kTwo).ok());
    };
    free_stripes(10, 6);
    free_stripes(20, 1);
    CHECK(hold(Hold::kAll, 1, 100).empty());  // not released
    f.commit(kTwo, {2});
    // Without the short one, which is not looked for again, but found by who wants all.
    std::vector<StripeRun> runs = hold(Hold::kFreed, 2, 100);
    REQUIRE(runs.size() == 1);
    CHECK((runs[0].first == 10 && runs[0].count == 6));
    CHECK(f.allocator.numbers(kAnything).free_row_blocks == 64);
    CHECK(f.allocator.numbers(kAnything).free_stripe_blocks == 64);
    CHECK(hold(Hold::kFreed, 1, 100).empty());
    f.allocator.let_go(group.address, runs[0], LetGo::kFreed);
    CHECK(f.allocator.numbers(kAnything).free_row_blocks == 7 * 64);
    // So many at a time, and the next call goes on behind them.
    runs = hold(Hold::kFreed, 1, 4);
    REQUIRE(runs.size() == 1);
    CHECK((runs[0].first == 10 && runs[0].count == 4));
    const std::vector<StripeRun> rest = hold(Hold::kFreed, 1, 100);
    REQUIRE(rest.size() == 1);
    CHECK((rest[0].first == 14 && rest[0].count == 2));
    for (const StripeRun& run : {runs[0], rest[0]})
        f.allocator.let_go(group.address, run, LetGo::kDiscarded);
    CHECK(hold(Hold::kFreed, 1, 100).empty());
    runs = hold(Hold::kAll, 1, 100);
    REQUIRE(runs.size() == 2);
    CHECK((runs[0].count == 6 && runs[1].first == 20 && runs[1].count == 1));
    for (const StripeRun& run : runs)
        f.allocator.let_go(group.address, run, LetGo::kDiscarded);
    CHECK(rows_of(f.take(7 * 64, kThree)) == 7 * 16);
    CHECK(f.refused(1));
}

TEST_CASE("stripes go out of use in pieces of long runs, and only between two places")
{
    using Hold = Allocator::Hold;
    for (const Hold which : {Hold::kFreed, Hold::kAll}) {
        SpaceFixture f;
        const GroupRecord group = f.add(kFirst, ProfileId::kRaid5, 4, 64 * kKiB, 50);
        f.take(50 * 64);
        f.commit(kOne, {1});
        for (const StripeRun& run : {StripeRun{2, 3}, {10, 9}, {20, 3}, {30, 12}})
            REQUIRE(
                f.allocator.free_blocks(group.address + run.first * 64 * kBlockBytes, run.count * 64, kTwo)
                    .ok());
        f.commit(kTwo, {2});
        // Runs of 4 or more, of which the last one is cut.
        Allocator::HoldWalk walk{.stripe = 3, .end = 36};
        std::vector<StripeRun> all;
        while (walk.stripe != UINT64_MAX) {
            std::vector<StripeRun> runs;
            REQUIRE(f.allocator.hold_stripes(group.address, which, 4, 7, walk, runs).ok());
            uint64_t count = 0;
            for (const StripeRun& run : runs)
                count += run.count;
            CHECK(count <= 7);
            all.insert(all.end(), runs.begin(), runs.end());
        }
        constexpr StripeRun kExpected[]{{10, 7}, {17, 2}, {30, 5}, {35, 1}};
        CHECK(std::equal(all.begin(), all.end(), std::begin(kExpected), std::end(kExpected),
                         [](const StripeRun& one, const StripeRun& other) {
                             return one.first == other.first && one.count == other.count;
                         }));
        CHECK(f.allocator.numbers(kAnything).free_row_blocks == (3 + 3 + 6) * 64);
    }
}

TEST_CASE("a group with stripes out of use stays, and the open stripe is left when it is one of them")
{
    SpaceFixture f;
    const GroupRecord group = f.add(kFirst, ProfileId::kRaid5, 4, 64 * kKiB, 50);
    const auto regions = f.take(5);  // begins a stripe
    f.commit(kOne, {1});
    for (uint64_t block = 0; block < 5; ++block)
        REQUIRE(f.allocator.free_blocks(regions[0].block_address(block), 1, kTwo).ok());
    f.commit(kTwo, {2});
    Allocator::HoldWalk walk;
    std::vector<StripeRun> runs;
    REQUIRE(f.allocator.hold_stripes(group.address, Allocator::Hold::kFreed, 1, 100, walk, runs).ok());
    REQUIRE(runs.size() == 1);
    CHECK(runs[0].first == regions[0].first_stripe);
    CHECK(f.allocator.empty_groups(kAnything).empty());
    CHECK(f.allocator.remove_group(group.address).err() == Err::kBusy);
    CHECK(f.take(5, kThree)[0].first_stripe != regions[0].first_stripe);
    f.allocator.let_go(group.address, runs[0], Allocator::LetGo::kDiscarded);
    f.allocator.set_group_state(group.address, Allocator::GroupState::kClosed);
    walk = {};
    runs.clear();
    REQUIRE(f.allocator.hold_stripes(group.address, Allocator::Hold::kAll, 1, 100, walk, runs).ok());
    CHECK(runs.empty());
}
