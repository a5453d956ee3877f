// SPDX-License-Identifier: MIT
// Writes in place on simulated members: content, parity, counts of requests, faults met on the way.
#include <doctest/doctest.h>

#include "base/checksum.h"
#include "base/sanitizer.h"
#include "raid56/row_plan.h"
#include "tests/support/array_fixture.h"
#include "tests/support/test_seed.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

// Blocks of one chunk of one stripe, by data column.
uint64_t block_of(const TestVolume& volume, uint64_t stripe, uint32_t column, uint32_t row)
{
    return offset_of(volume.geometry, {stripe, column, row}) / kBlockBytes;
}

struct Requests {
    size_t reads, writes, flushes;
    friend bool operator==(const Requests&, const Requests&) = default;
};

Requests requests(const TestVolume& volume)
{
    return {volume.requests(IoKind::kRead), volume.requests(IoKind::kWrite), volume.requests(IoKind::kFlush)};
}

RowBits bits(std::initializer_list<uint32_t> columns)
{
    RowBits out;
    for (const uint32_t column : columns)
        out[column] = true;
    return out;
}

}  // namespace

TEST_CASE("reads are chosen by count: what the cache holds costs nothing, what is away cannot be read")
{
    const RowSituation one{.data_columns = 8, .parity = 2, .writes = bits({3}), .present = {}, .away = {}};
    CHECK(plan_row(one, RmwLevel::kFewerReads).mode == RowMode::kModify);
    CHECK(plan_row(one, RmwLevel::kFewerReads).reads == bits({3, 8, 9}));
    CHECK(plan_row(one, RmwLevel::kNever).mode == RowMode::kReconstruct);
    CHECK(plan_row(one, RmwLevel::kNever).reads == bits({0, 1, 2, 4, 5, 6, 7}));

    RowSituation half = one;
    half.writes = bits({0, 1, 2});
    CHECK(plan_row(half, RmwLevel::kFewerReads).reads == bits({3, 4, 5, 6, 7}));  // as many: five and five
    CHECK(plan_row(half, RmwLevel::kPrefer).reads == bits({0, 1, 2, 8, 9}));
    half.present = bits({9});
    CHECK(plan_row(half, RmwLevel::kFewerReads).reads == bits({0, 1, 2, 8}));

    RowSituation degraded = one;
    degraded.away = bits({3});
    CHECK(plan_row(degraded, RmwLevel::kFewerReads).reads == bits({0, 1, 2, 4, 5, 6, 7}));
    degraded.away = bits({5});
    CHECK(plan_row(degraded, RmwLevel::kNever).reads == bits({3, 8, 9}));
    degraded.away = bits({8});
    CHECK(plan_row(degraded, RmwLevel::kFewerReads).reads == bits({3, 9}));
    degraded.away = bits({3, 5});
    CHECK(plan_row(degraded, RmwLevel::kFewerReads).mode == RowMode::kSolve);
    CHECK(plan_row(degraded, RmwLevel::kFewerReads).reads == bits({0, 1, 2, 4, 6, 7, 8, 9}));
    degraded.present = bits({5});
    CHECK(plan_row(degraded, RmwLevel::kFewerReads).reads == bits({0, 1, 2, 4, 6, 7}));
}

TEST_CASE("blocks written in place are there, with parity, in every shape and by every way of reading")
{
    const uint64_t seed = test_seed();
    INFO("seed ", seed);
    // One of four with a sanitizer: of a shape one level or none, each level as often.
    constexpr size_t kStep = kSanitized ? 4 : 1;
    size_t number = 0;
    for (const Shape& shape : parity_shapes(8, {4096, 16384, 65536})) {
        for (const RmwLevel level : {RmwLevel::kNever, RmwLevel::kFewerReads, RmwLevel::kPrefer}) {
            if (number++ % kStep != 0)
                continue;
            INFO(describe(shape), " rmw_level ", static_cast<int>(level));
            TestVolume volume(shape, seed);
            volume.start_partial_writes({.stripe_cache_size = 17,
                                         .rmw_level = level,
                                         .stripe_io_bytes = level == RmwLevel::kPrefer ? 16384u : 4096u,
                                         .worker_count = 0});
            REQUIRE(volume.write(0, 40, 20).ok());
            const uint64_t blocks = 40 * volume.geometry.stripe_data_blocks();
            for (int i = 0; i < 60; ++i) {
                const uint64_t first = volume.prng.below(blocks);
                const uint64_t most = std::min<uint64_t>(blocks - first, volume.prng.chance(1, 4) ? 40 : 3);
                REQUIRE(volume.overwrite(first, static_cast<uint32_t>(volume.prng.between(1, most))).ok());
            }
            CHECK(volume.disk_is_right());
            CHECK(volume.read_back(0, static_cast<uint32_t>(blocks)));
            CHECK(volume.all_counters() == 0);
        }
    }
}

TEST_CASE("member requests of one small write, cold and cached")
{
    TestVolume volume({ProfileId::kRaid6, 8, 65536});
    volume.start_partial_writes({.worker_count = 0});
    REQUIRE(volume.write(0, 4, 0).ok());
    volume.forget_requests();
    REQUIRE(volume.overwrite(block_of(volume, 1, 2, 5), 1).ok());
    // Old data, P, Q; two log writes; data, P, Q.
    CHECK(requests(volume) == Requests{3, 5, 0});
    volume.forget_requests();
    REQUIRE(volume.overwrite(block_of(volume, 1, 3, 5), 1).ok());
    CHECK(requests(volume) == Requests{1, 5, 0});  // P and Q are known
    volume.forget_requests();
    REQUIRE(volume.overwrite(block_of(volume, 1, 3, 5), 1).ok());
    CHECK(requests(volume) == Requests{0, 5, 0});
    volume.forget_requests();
    REQUIRE(volume.overwrite(block_of(volume, 2, 0, 0), 16).ok());
    CHECK(requests(volume) == Requests{3, 5, 0});  // a chunk at a time, not a block
    volume.forget_requests();
    REQUIRE(volume.overwrite(block_of(volume, 3, 0, 0), 8 * 16).ok());
    CHECK(requests(volume) == Requests{0, 10, 0});  // a full stripe
    const PartialWriteStatistics statistics = volume.array->partial_write_statistics();
    CHECK(statistics.rmw_rows == 3 + 16);
    CHECK(statistics.rcw_rows == 0);
    CHECK(statistics.full_rows == 16);
    CHECK(statistics.cache_misses == 3 + 1 + 3 * 16);
    CHECK(statistics.cache_hits == 2 + 3);
}

TEST_CASE("the second of two adjacent small writes reads nothing, also after a write with pads")
{
    for (const Shape& shape : parity_shapes(8, {65536})) {
        if (shape.data_columns < 2)
            continue;
        INFO(describe(shape));
        TestVolume volume(shape);
        volume.start_partial_writes({.worker_count = 0});
        AlignedBuffer data(kBlockBytes);
        volume.prng.fill(data.data(), data.size());
        // What the filesystem does with one block: a row of its own, the rest pads.
        RowWrite write = volume.prepare(0, 1, 0, 1, 100);
        std::vector<const std::byte*> blocks(write.blocks.begin(), write.blocks.end());
        blocks[0] = data.data();
        write.blocks = blocks;
        REQUIRE(volume.array->write_rows({&write, 1}).ok());
        volume.commit(write);
        volume.forget_requests();
        REQUIRE(volume.overwrite(block_of(volume, 0, 1, 0), 1).ok());
        CHECK(volume.requests(IoKind::kRead) == 0);
        CHECK(volume.disk_is_right());
    }
}

TEST_CASE("every (bad block, written block) pair: what is read for a write is verified and repaired first")
{
    for (const Shape& shape : parity_shapes(8, {8192})) {
        INFO(describe(shape));
        TestVolume volume(shape);
        volume.start_partial_writes({.rmw_level = RmwLevel::kFewerReads, .worker_count = 0});
        const uint32_t columns = volume.geometry.columns();
        REQUIRE(volume.write(0, columns * shape.data_columns * 2, 0).ok());
        uint64_t stripe = 0;
        for (const bool silent : {true, false}) {
            for (uint32_t bad = 0; bad < columns; ++bad) {
                for (uint32_t written = 0; written < shape.data_columns; ++written, ++stripe) {
                    INFO("bad ", bad, " written ", written, " silent ", silent);
                    const BlockPlace place{stripe, bad, 1};
                    silent ? volume.rot(place) : volume.latent(place);
                    REQUIRE(volume.overwrite(block_of(volume, stripe, written, 1), 1).ok());
                    // Whether it was met or not: nothing wrong went into parity, and every block can be read.
                    REQUIRE(volume.read_back(block_of(volume, stripe, 0, 0),
                                             volume.geometry.stripe_data_blocks()));
                }
            }
        }
        // What no write and no read met is parity alone.
        std::vector<BadBlock> found;
        REQUIRE(volume.array->check_stripes(TestVolume::kGroup, 0, stripe, found).ok());
        for (const BadBlock& bad : found)
            CHECK(bad.kind != BadBlock::Kind::kData);
        CHECK(volume.given_up.empty());
    }
}

TEST_CASE("what is wrong in a free block is charged to nobody, nor is a row that cannot be solved")
{
    TestVolume volume({ProfileId::kRaid6, 6, 8192});
    volume.start_partial_writes({.rmw_level = RmwLevel::kNever, .worker_count = 0});
    REQUIRE(volume.write(0, 4, 0).ok());
    // As after a crash whose log entries were lost: free blocks with other content.
    const BlockPlace place{0, 3, 1};
    volume.free_addresses.insert(TestVolume::kGroup.value + offset_of(volume.geometry, place));
    volume.rot(place);
    REQUIRE(volume.overwrite(block_of(volume, 0, 1, 1), 1).ok());
    CHECK(volume.all_counters() == 0);
    CHECK(volume.disk_is_right());
    // A used one is charged to its member.
    volume.rot({1, 2, 0});
    REQUIRE(volume.overwrite(block_of(volume, 1, 1, 0), 1).ok());
    CHECK(volume.counter(volume.spot({1, 2, 0}).member, MemberCounter::kCorruption) == 1);
    CHECK(volume.counter(volume.spot({1, 2, 0}).member, MemberCounter::kRepaired) == 1);
    CHECK(volume.all_counters() == 2);
    for (const uint32_t column : {2u, 3u, 4u})
        volume.rot({2, column, 1});
    CHECK(volume.overwrite(block_of(volume, 2, 1, 1), 1) == Status(Err::kTooManyFaults));
    CHECK(volume.all_counters() == 2);
}

TEST_CASE("degraded: writes in place with every set of members away that redundancy carries")
{
    const uint64_t seed = test_seed();
    INFO("seed ", seed);
    for (const Shape& shape : parity_shapes(6, {8192})) {
        const uint32_t columns = shape.data_columns + (shape.profile == ProfileId::kRaid6 ? 2 : 1);
        for (uint32_t first = 0; first < columns; ++first) {
            for (uint32_t second = first; second < columns; ++second) {
                if (second != first && shape.profile != ProfileId::kRaid6)
                    continue;
                INFO(describe(shape), " without ", first, " and ", second);
                TestVolume volume(shape, seed);
                volume.start_partial_writes({.stripe_cache_size = 17, .worker_count = 0});
                REQUIRE(volume.write(0, 30, 20).ok());
                const uint64_t blocks = 30 * volume.geometry.stripe_data_blocks();
                REQUIRE(volume.overwrite(0, 5).ok());  // some of it in the cache
                volume.remove(first);
                volume.remove(second);
                for (int i = 0; i < 25; ++i) {
                    const uint64_t at = volume.prng.below(blocks);
                    const auto count = volume.prng.between(1, std::min<uint64_t>(blocks - at, 6));
                    REQUIRE(volume.overwrite(at, static_cast<uint32_t>(count)).ok());
                }
                CHECK(volume.read_back(0, static_cast<uint32_t>(blocks)));
                CHECK(volume.disk_is_right({first, second}));
            }
        }
    }
}

TEST_CASE("a member that fails in the middle of a write is left out; one too many is an error")
{
    TestVolume volume({ProfileId::kRaid5, 3, 8192});
    volume.start_partial_writes({.worker_count = 0});
    REQUIRE(volume.write(0, 20, 0).ok());
    const uint64_t blocks = 20 * volume.geometry.stripe_data_blocks();
    volume.faults[2]->add_rule({.action = FaultAction::kError, .kinds = kFaultWrites});
    uint64_t refused = 0;
    for (uint64_t block = 0; block < blocks; block += 3) {
        const Status written = volume.overwrite(block, 1);
        if (written.ok())
            continue;
        REQUIRE(written == Status(Err::kNoSpace));
        REQUIRE(volume.read_back(block, 1));  // what it held
        ++refused;
        volume.record_away();
        REQUIRE(volume.overwrite(block, 1).ok());
    }
    // Its parity was to be written without an entry of the log.
    CHECK(refused == 1);
    CHECK(volume.set.failed(TestVolume::member_id(2)));
    CHECK(volume.read_back(0, static_cast<uint32_t>(blocks)));
    CHECK(volume.disk_is_right({2}));
    volume.remove(0);
    CHECK(volume.overwrite(1, 1) == Status(Err::kTooManyFaults));
}

TEST_CASE("a full log refuses rows until their checksums are committed; a crowded cache flushes")
{
    TestVolume volume({ProfileId::kRaid6, 3, 16384});
    volume.start_partial_writes({.stripe_cache_size = 17, .worker_count = 0});
    REQUIRE(volume.write(0, 600, 0).ok());
    const uint64_t blocks = 600 * volume.geometry.stripe_data_blocks();
    uint64_t refused = 0;
    for (int i = 0; i < 4000; ++i) {
        const uint64_t block = volume.prng.below(blocks);
        const Status written = volume.overwrite(block, 1);
        if (written.ok())
            continue;
        REQUIRE(written == Status(Err::kNoSpace));
        ++refused;
        REQUIRE(volume.read_back(block, 1));  // what it held
        REQUIRE(volume.overwrite(block, 1) == Status(Err::kNoSpace));
        REQUIRE(volume.commit_all().ok());
        REQUIRE(volume.overwrite(block, 1).ok());
    }
    const PartialWriteStatistics statistics = volume.array->partial_write_statistics();
    CHECK(refused >= 3);
    CHECK(statistics.flushes > 10);
    CHECK(statistics.rows == 4000);
    CHECK(volume.log->usage().used_blocks <= volume.log->usage().room_blocks);
    CHECK(volume.disk_is_right());
}

namespace {

// Whether every block of the first stripes is what is expected, and parity fits.
bool all_is_right(TestVolume& volume, uint64_t stripes)
{
    std::vector<BadBlock> found;
    return volume.array->check_stripes(TestVolume::kGroup, 0, stripes, found).ok() && found.empty();
}

// As after a crash of which nothing tells: block `place` holds something newer than what is recorded of it,
// and parity fits what it holds.
void write_unrecorded(TestVolume& volume, const BlockPlace& place)
{
    std::vector<std::pair<uint64_t, BlockExpectation>> recorded;
    const uint32_t k = volume.geometry.data_columns;
    for (uint32_t column = 0; column < volume.geometry.columns(); ++column) {
        if (column != place.column && column < k)
            continue;
        const BlockPlace at{place.stripe, column, place.row};
        recorded.emplace_back(TestVolume::kGroup.value + offset_of(volume.geometry, at),
                              BlockExpectation{true, volume.checksum_at(at)});
    }
    REQUIRE(volume.overwrite(block_of(volume, place.stripe, place.column, place.row), 1).ok());
    for (const auto& [address, expected] : recorded)
        volume.record({address}, std::span(&expected.checksum, 1));
    REQUIRE(volume.commit_all().ok());
    volume.free_addresses.insert(TestVolume::kGroup.value + offset_of(volume.geometry, place));
}

}  // namespace

TEST_CASE("what a write replaces, and parity, may be lost in any number: the row is written")
{
    for (const Shape& shape : parity_shapes(8, {8192})) {
        for (const RmwLevel level : {RmwLevel::kNever, RmwLevel::kPrefer}) {
            INFO(describe(shape), " rmw_level ", static_cast<int>(level));
            if (shape.data_columns < 2)
                continue;
            TestVolume volume(shape);
            volume.start_partial_writes({.rmw_level = level, .worker_count = 0});
            REQUIRE(volume.write(0, 2, 0).ok());
            const uint32_t k = volume.geometry.data_columns;
            volume.rot({0, 1, 1});
            volume.latent({1, 0, 0});
            for (uint32_t column = k; column < volume.geometry.columns(); ++column) {
                volume.rot({0, column, 1});
                volume.latent({1, column, 0});
            }
            REQUIRE(volume.overwrite(block_of(volume, 0, 1, 1), 1).ok());
            REQUIRE(volume.overwrite(block_of(volume, 1, 0, 0), 1).ok());
            CHECK(volume.disk_is_right());
            CHECK(all_is_right(volume, 2));
        }
    }
}

TEST_CASE("a row that nobody recorded is read without a member, written, and adopted as it is")
{
    for (const Shape& shape : parity_shapes(8, {8192})) {
        INFO(describe(shape));
        if (shape.data_columns < 3)
            continue;
        TestVolume volume(shape);
        REQUIRE(volume.write(0, 2, 0).ok());
        volume.start_partial_writes({.worker_count = 0});
        write_unrecorded(volume, {0, 2, 1});
        write_unrecorded(volume, {1, 2, 0});
        CHECK(!all_is_right(volume, 2));
        TestVolume later(volume, 1, {});  // its cache knows nothing
        later.free_addresses = volume.free_addresses;
        later.start_partial_writes({.worker_count = 0});
        // Whatever else is lost, as long as parity tolerates it.
        later.latent({0, 0, 1});
        CHECK(later.read_back(block_of(later, 0, 0, 1), 1));
        CHECK(later.given_up.empty());
        later.latent({1, 0, 0});
        REQUIRE(later.overwrite(block_of(later, 0, 1, 1), 1).ok());
        REQUIRE(later.overwrite(block_of(later, 1, 1, 0), 1).ok());
        CHECK(later.read_back(block_of(later, 1, 0, 0), 1));
        CHECK(later.disk_is_right());
        CHECK(all_is_right(later, 2));
    }
}

TEST_CASE("a free block that cannot be had is nothing to fail for")
{
    for (const Shape& shape : parity_shapes(8, {8192})) {
        INFO(describe(shape));
        if (shape.data_columns < 3)
            continue;
        TestVolume volume(shape);
        volume.start_partial_writes({.rmw_level = RmwLevel::kNever, .worker_count = 0});
        REQUIRE(volume.write(0, 1, 0).ok());
        const BlockPlace lost{0, 2, 1};
        volume.latent(lost);
        for (uint32_t column = volume.geometry.data_columns; column < volume.geometry.columns(); ++column)
            volume.rot({0, column, 1});
        CHECK(volume.overwrite(block_of(volume, 0, 1, 1), 1) == Status(Err::kTooManyFaults));
        volume.free_addresses.insert(TestVolume::kGroup.value + offset_of(volume.geometry, lost));
        REQUIRE(volume.overwrite(block_of(volume, 0, 1, 1), 1).ok());
        CHECK(all_is_right(volume, 1));
        CHECK(volume.read_back(block_of(volume, 0, 0, 1), 2));
    }
}

TEST_CASE("a free block that is adopted is written to its member, which did not answer and stays in service")
{
    for (const Shape& shape : {Shape{ProfileId::kRaid5, 3, 16384}, Shape{ProfileId::kRaid6, 4, 16384}}) {
        CAPTURE(describe(shape));
        TestVolume volume(shape);
        volume.start_partial_writes({.rmw_level = RmwLevel::kNever, .worker_count = 0});
        REQUIRE(volume.write(0, 1, 0).ok());
        const BlockPlace free{0, 2, 1};
        const TestVolume::Spot spot = volume.spot(free);
        volume.free_addresses.insert(TestVolume::kGroup.value + offset_of(volume.geometry, free));
        for (uint32_t column = volume.geometry.data_columns; column < volume.geometry.columns(); ++column)
            volume.rot({0, column, 1});
        volume.set.set_quorums({{{TestVolume::member_id(spot.member)}, 1}});
        const size_t rule = volume.faults[spot.member]->add_rule(
            {.kinds = kFaultReads, .limit = 1, .error = Err::kMemberGone});
        REQUIRE(volume.overwrite(block_of(volume, 0, 1, 1), 1).ok());
        CHECK(volume.faults[spot.member]->hits(rule) == 1);
        CHECK(volume.set.device(TestVolume::member_id(spot.member)) != nullptr);
        CHECK(all_is_right(volume, 1));
        std::vector<std::byte> have(kBlockBytes);
        volume.sims[spot.member]->peek(spot.offset, have);
        CHECK(volume.checksum_at(free) == checksum_of(have.data(), kBlockBytes));
        CHECK(volume.counter(spot.member, MemberCounter::kRepaired) == 0);
    }
}

// A power cut may leave what an unfinished write put there on the member and not on the one that takes its
// place.
TEST_CASE("a free block that is adopted is written to the successor of its member, too")
{
    constexpr MemberId kTarget{100};
    for (const Shape& shape : {Shape{ProfileId::kRaid5, 3, 16384}, Shape{ProfileId::kRaid6, 4, 16384}}) {
        CAPTURE(describe(shape));
        TestVolume volume(shape);
        volume.start_partial_writes({.rmw_level = RmwLevel::kNever, .worker_count = 0});
        REQUIRE(volume.write(0, 1, 0).ok());
        auto sim = std::make_unique<SimDevice>("target", 128 * kMiB);
        const SimDevice& target = *sim;
        volume.set.add(kTarget, std::move(sim), {});
        const BlockPlace free{0, 2, 1};
        const TestVolume::Spot spot = volume.spot(free);
        volume.set.set_mirror(TestVolume::member_id(spot.member), kTarget);
        volume.free_addresses.insert(TestVolume::kGroup.value + offset_of(volume.geometry, free));
        volume.rot(free);
        for (uint32_t column = volume.geometry.data_columns; column < volume.geometry.columns(); ++column)
            volume.rot({0, column, 1});
        std::vector<std::byte> left(kBlockBytes), have(kBlockBytes);
        volume.sims[spot.member]->peek(spot.offset, left);
        REQUIRE(volume.overwrite(block_of(volume, 0, 1, 1), 1).ok());
        CHECK(all_is_right(volume, 1));
        CHECK(volume.checksum_at(free) == checksum_of(left.data(), kBlockBytes));
        volume.sims[spot.member]->peek(spot.offset, have);
        CHECK((have == left));
        target.peek(spot.offset, have);
        CHECK((have == left));
        CHECK(volume.counter(spot.member, MemberCounter::kCorruption) == 0);
    }
}

TEST_CASE("addresses that are not data of a parity group, and a read-only array, are refused")
{
    TestVolume volume({ProfileId::kRaid6, 3, 16384});
    volume.start_partial_writes({.worker_count = 0});
    REQUIRE(volume.write(0, 1, 0).ok());
    AlignedBuffer data = AlignedBuffer::zeroed(2 * kBlockBytes);
    const uint64_t end = volume.geometry.data_blocks();
    const auto refused = [&](VolumeAddress address, uint32_t count) {
        BlockWrite write{address, count, data.data(), {}};
        const Status status = volume.array->write_blocks({&write, 1}, volume.origin());
        CHECK(write.result == status);
        return status;
    };
    volume.forget_requests();
    CHECK(refused(TestVolume::kGroup + end * kBlockBytes, 1) == Status(Err::kInvalid));
    CHECK(refused(TestVolume::kGroup + (end - 1) * kBlockBytes, 2) == Status(Err::kInvalid));
    CHECK(refused({kBlockBytes}, 1) == Status(Err::kInvalid));
    CHECK(refused(TestVolume::kGroup + 512, 1) == Status(Err::kInvalid));
    CHECK(refused(TestVolume::kGroup, 0) == Status(Err::kInvalid));
    // Never written as a whole: nobody knows what its other blocks hold.
    CHECK(refused(TestVolume::kGroup + 64 * volume.geometry.stripe_data_bytes(), 1) ==
          Status(Err::kTooManyFaults));
    volume.array->set_read_only(true);
    CHECK(refused(TestVolume::kGroup, 1) == Status(Err::kReadOnly));
    CHECK(requests(volume) == Requests{0, 0, 0});
    PartialWriteOptions options;
    options.stripe_cache_size = 16;
    CHECK(volume.array->set_partial_write_options(options) == Status(Err::kInvalid));
    options.stripe_cache_size = 32769;
    CHECK(volume.array->set_partial_write_options(options) == Status(Err::kInvalid));
    options = {.stripe_io_bytes = 12288};
    CHECK(volume.array->set_partial_write_options(options) == Status(Err::kInvalid));
}

namespace {

// Number of the block in the group.
uint64_t block_at(const TestVolume& volume, uint64_t stripe, uint32_t column, uint32_t row)
{
    return offset_of(volume.geometry, {stripe, column, row}) / kBlockBytes;
}

}  // namespace

TEST_CASE("parity that was away is never recorded as what it once was")
{
    for (const ProfileId id : {ProfileId::kRaid5, ProfileId::kRaid6}) {
        CAPTURE(static_cast<uint32_t>(id));
        TestVolume volume({id, 6, 65536});
        volume.start_partial_writes({.worker_count = 0});
        REQUIRE(volume.write(0, 1, 0).ok());
        REQUIRE(volume.commit_all().ok());
        const BlockPlace parity{0, 6, 0};
        const Checksum old = volume.checksum_at(parity);
        volume.remove(volume.spot(parity).member);
        for (uint32_t column = 1; column < 4; ++column) {
            REQUIRE(volume.overwrite(block_at(volume, 0, column, 0), 1).ok());
            CHECK(volume.checksum_at(parity) != old);
        }
        REQUIRE(volume.commit_all().ok());
        // The member returns with its old parity, and another block of the row is written.
        TestVolume back(volume, 5, {});
        back.start_partial_writes({.worker_count = 0});
        REQUIRE(back.overwrite(block_at(back, 0, 4, 0), 1).ok());
        CHECK(back.disk_is_right());
        CHECK(all_is_right(back, 1));
        back.remove(back.spot({0, 0, 0}).member);
        CHECK(back.read_back(block_at(back, 0, 0, 0), 1));
    }
}

TEST_CASE("too many members that fail while a floor is recorded stop the volume, and nothing else")
{
    TestVolume volume({ProfileId::kRaid5, 3, 65536});
    volume.start_partial_writes({.worker_count = 0});
    REQUIRE(volume.write(0, 60, 0).ok());
    REQUIRE(volume.commit_all().ok());
    uint64_t block = 0;
    while (volume.overwrite(block, 1).ok())
        ++block;
    CHECK(block > 1000);
    REQUIRE(volume.commit_all().ok());
    for (FaultDevice* device : volume.faults)
        device->add_rule({.action = FaultAction::kError, .kinds = kFaultWrites});
    for (int i = 0; i < 60; ++i)
        CHECK(volume.overwrite(block, 1) == Status(Err::kTooManyFaults));
    CHECK(volume.set.stopped());
    CHECK(volume.read_back(0, 1));
}
