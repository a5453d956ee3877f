// SPDX-License-Identifier: MIT
// Healthy and degraded reads: content, and how many requests they take.
#include <doctest/doctest.h>

#include <set>

#include "raid56/io_plan.h"
#include "tests/support/array_fixture.h"
#include "tests/support/test_seed.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

// Every block that members were asked for, and whether one was asked for twice.
struct Coverage {
    explicit Coverage(const TestVolume& volume)
    {
        for (uint32_t member = 0; member < volume.member_count(); ++member) {
            for (const CountingDevice::Entry& entry : volume.counts[member]->entries(IoKind::kRead)) {
                ++requests;
                for (uint64_t at = 0; at < entry.bytes; at += kBlockBytes)
                    repeated = !blocks.insert({member, entry.offset + at}).second || repeated;
            }
        }
    }
    std::set<std::pair<uint32_t, uint64_t>> blocks;
    size_t requests = 0;
    bool repeated = false;
};

}  // namespace

TEST_CASE("a healthy read asks each member for large contiguous pieces, never for single blocks")
{
    constexpr uint32_t kStripes = 24;
    for (const Shape& shape : shapes({4096, 65536})) {
        INFO(describe(shape));
        TestVolume volume(shape);
        REQUIRE(volume.write(0, kStripes, 0).ok());
        volume.forget_requests();
        REQUIRE(volume.read_back(0, kStripes * volume.geometry.stripe_data_blocks()));
        const Coverage coverage(volume);
        CHECK_FALSE(coverage.repeated);
        const uint64_t gap = uint64_t{shape.chunk_bytes} * volume.geometry.parity;
        const uint32_t n = volume.member_count();
        if (volume.geometry.parity > 0 && gap <= IoPlan::kBridgeBytes) {
            // Parity in between is read and thrown away.
            CHECK(coverage.requests <= n);
        } else if (volume.geometry.parity > 0) {
            // A member holds parity for m of every n stripes: at most one request more for each such gap.
            CHECK(coverage.requests <= n * (kStripes / n + 2));
            CHECK(coverage.blocks.size() == kStripes * volume.geometry.stripe_data_blocks());
        } else {
            // Mirrors take turns by the mebibyte.
            const uint64_t turns = kStripes * uint64_t{shape.chunk_bytes} / kMiB + 1;
            CHECK(coverage.requests <= n * turns);
        }
        CHECK(volume.all_counters() == 0);
    }
}

TEST_CASE("several pieces are merged into one request per member where they adjoin")
{
    TestVolume volume({ProfileId::kRaid6, 6, 65536});
    REQUIRE(volume.write(0, 1, 0).ok());
    volume.forget_requests();
    std::vector<ReadPiece> pieces;
    for (uint32_t block = 0; block < 6 * 16; ++block)
        pieces.push_back(volume.piece(95 - block, 1));
    REQUIRE(volume.array->read(pieces).ok());
    for (const ReadPiece& piece : pieces)
        CHECK(volume.right(piece));
    CHECK(volume.requests(IoKind::kRead) == 6);
    CHECK(volume.array->statistics().blocks_read == 96);
}

TEST_CASE("copies share the reading")
{
    for (const ProfileId id : {ProfileId::kRaid1, ProfileId::kRaid1c3, ProfileId::kRaid10}) {
        const uint32_t k = id == ProfileId::kRaid10 ? 2 : 1;
        TestVolume volume({id, k, 65536});
        INFO(describe(volume.shape));
        REQUIRE(volume.write(0, 96 * uint64_t{k}, 0).ok());
        volume.forget_requests();
        REQUIRE(volume.read_back(0, 96 * 16 * k));
        for (const CountingDevice* device : volume.counts) {
            uint64_t bytes = 0;
            for (const CountingDevice::Entry& entry : device->entries(IoKind::kRead))
                bytes += entry.bytes;
            CHECK(bytes == 96 * 65536 * k / volume.member_count());
        }
    }
}

TEST_CASE("addresses that are not data of one group are refused piece by piece")
{
    TestVolume volume({ProfileId::kRaid5, 2, 16384});
    REQUIRE(volume.write(0, 1).ok());
    ReadPiece pieces[] = {volume.piece(0, 3), volume.piece(0, 1), volume.piece(1, 2), volume.piece(0, 1),
                          volume.piece(2, 1)};
    pieces[1].address = TestVolume::kGroup + volume.geometry.data_blocks() * kBlockBytes;  // parity
    pieces[2].address = TestVolume::kGroup + (volume.geometry.data_blocks() - 1) * kBlockBytes;
    pieces[3].block_count = 0;
    pieces[4].address.value += 512;
    CHECK(volume.array->read(pieces).err() == Err::kInvalid);
    CHECK(pieces[0].result.ok());
    CHECK(volume.right(pieces[0]));
    for (int i = 1; i < 5; ++i)
        CHECK(pieces[i].result.err() == Err::kInvalid);
    pieces[0].address = {4096};
    CHECK(volume.array->read(std::span(pieces, 1)).err() == Err::kInvalid);
}

TEST_CASE("every single and every pair of missing members: all is read, nothing is counted or written")
{
    const uint64_t seed = test_seed();
    INFO("seed ", seed);
    for (const Shape& shape : shapes({8192, 65536})) {
        TestVolume sample(shape, seed);
        const uint32_t n = sample.member_count();
        const uint32_t tolerance = sample.array->group_at(TestVolume::kGroup)->tolerance;
        for (uint32_t first = 0; first < n && tolerance > 0; ++first) {
            for (uint32_t second = first; second < n; ++second) {
                // Two missing copies of the same block are one too many for two copies.
                if (first != second && (tolerance < 2 || (n > 8 && (first * 7 + second) % 6 != 0)))
                    continue;
                INFO(describe(shape), " without ", first, " and ", second);
                TestVolume volume(shape, seed + first * 100 + second);
                REQUIRE(volume.write(0, 5).ok());
                volume.remove(first);
                volume.remove(second);
                volume.forget_requests();
                const uint32_t blocks = 5 * volume.geometry.stripe_data_blocks();
                REQUIRE(volume.read_back(0, blocks));
                const Coverage coverage(volume);
                CHECK_FALSE(coverage.repeated);
                for (int i = 0; i < 4; ++i) {
                    const uint64_t begin = volume.prng.below(blocks);
                    CHECK(volume.read_back(begin,
                                           static_cast<uint32_t>(volume.prng.between(1, blocks - begin))));
                }
                CHECK(volume.all_counters() == 0);
                CHECK(volume.requests(IoKind::kWrite) == 0);
            }
        }
    }
}

TEST_CASE("a large degraded read takes large requests and no block twice")
{
    for (const Shape& shape : parity_shapes(8, {65536})) {
        INFO(describe(shape));
        TestVolume volume(shape);
        constexpr uint32_t kStripes = 24;
        REQUIRE(volume.write(0, kStripes, 0).ok());
        for (uint32_t i = 0; i < volume.geometry.parity; ++i)
            volume.remove(i * 2 % volume.member_count());
        volume.forget_requests();
        REQUIRE(volume.read_back(0, kStripes * volume.geometry.stripe_data_blocks()));
        const Coverage coverage(volume);
        CHECK_FALSE(coverage.repeated);
        // No more than k blocks of each row.
        CHECK(coverage.blocks.size() == kStripes * volume.geometry.stripe_data_blocks());
        for (uint32_t member = 0; member < volume.member_count(); ++member)
            for (const CountingDevice::Entry& entry : volume.counts[member]->entries(IoKind::kRead))
                CHECK(entry.bytes >= 65536);
    }
}

TEST_CASE("a small degraded read takes k blocks, one request each")
{
    TestVolume volume({ProfileId::kRaid6, 6, 65536});
    REQUIRE(volume.write(0, 2).ok());
    volume.remove(volume.spot({1, 2, 5}).member);
    volume.forget_requests();
    REQUIRE(volume.read_back(6 * 16 + 2 * 16 + 5, 1));
    const Coverage coverage(volume);
    CHECK(coverage.blocks.size() == 6);
    CHECK(coverage.requests == 6);
    CHECK(volume.array->statistics().blocks_reconstructed == 1);
}

TEST_CASE("too many missing members: exactly their blocks fail, the rest is delivered")
{
    for (const Shape& shape : parity_shapes(6, {16384})) {
        INFO(describe(shape));
        TestVolume volume(shape);
        REQUIRE(volume.write(0, 3, 0).ok());
        const uint32_t tolerance = volume.geometry.parity;
        for (uint32_t member = 0; member <= tolerance; ++member)
            volume.remove(member);
        const uint32_t blocks = 3 * volume.geometry.stripe_data_blocks();
        std::vector<ReadPiece> pieces;
        for (uint32_t block = 0; block < blocks; ++block)
            pieces.push_back(volume.piece(block, 1));
        uint32_t lost = 0;
        CHECK(volume.array->read(pieces).err() == Err::kTooManyFaults);
        for (uint32_t block = 0; block < blocks; ++block) {
            const uint32_t member =
                volume.spot(place_of(volume.geometry, block * uint64_t{kBlockBytes})).member;
            const bool gone = member <= tolerance;
            CHECK(pieces[block].result == (gone ? Status(Err::kTooManyFaults) : Status()));
            CHECK(pieces[block].bad_blocks == gone);
            CHECK((gone || volume.right(pieces[block])));
            lost += gone;
        }
        REQUIRE(lost > 0);
        CHECK(volume.given_up.size() == lost);
        CHECK(volume.array->statistics().blocks_unrecoverable == lost);
        ReadPiece all = volume.piece(0, blocks);
        CHECK(volume.array->read(std::span(&all, 1)).err() == Err::kTooManyFaults);
        CHECK(all.bad_blocks == lost);
        CHECK(volume.requests(IoKind::kWrite) == 3 * 0 + volume.member_count());
        CHECK(volume.all_counters() == 0);
    }
}

TEST_CASE("a member that is pulled during the call counts as missing")
{
    for (const Shape& shape : {Shape{ProfileId::kRaid5, 4, 65536}, Shape{ProfileId::kRaid1, 1, 65536}}) {
        TestVolume volume(shape);
        REQUIRE(volume.write(0, 20).ok());
        volume.faults[1]->add_rule({.action = FaultAction::kGone, .kinds = kFaultReads});
        CHECK(volume.read_back(0, 20 * volume.geometry.stripe_data_blocks()));
        CHECK(volume.all_counters() == 0);
    }
}

TEST_CASE("a member that is gone is asked once, while all groups can do without it")
{
    for (const Shape& shape : {Shape{ProfileId::kRaid6, 4, 65536}, Shape{ProfileId::kRaid1c3, 1, 65536}}) {
        INFO(describe(shape));
        TestVolume volume(shape);
        REQUIRE(volume.write(0, 20).ok());
        const uint32_t blocks = 20 * volume.geometry.stripe_data_blocks();
        // One that cannot be read here and there is asked on.
        volume.faults[2]->add_rule({.kinds = kFaultReads, .permille = 300});
        CHECK(volume.read_back(0, blocks));
        CHECK_FALSE(volume.set.failed(TestVolume::member_id(2)));
        volume.faults[2]->remove_all_rules();
        volume.faults[1]->add_rule({.action = FaultAction::kGone});
        CHECK(volume.read_back(0, blocks));
        CHECK(volume.set.failed(TestVolume::member_id(1)));
        volume.forget_requests();
        CHECK(volume.read_back(0, blocks));
        CHECK(volume.counts[1]->entries(IoKind::kRead).empty());
        if (volume.geometry.parity == 0)
            continue;  // copies are asked one after the other
        // Two at once, of which redundancy carries one, stay both: nobody records what nobody can do without.
        for (const uint32_t member : {0u, 2u})
            volume.faults[member]->add_rule({.action = FaultAction::kGone});
        CHECK_FALSE(volume.read_back(0, blocks));
        CHECK_FALSE(volume.set.failed(TestVolume::member_id(0)));
        CHECK_FALSE(volume.set.failed(TestVolume::member_id(2)));
        CHECK_FALSE(volume.set.stopped());
        for (const uint32_t member : {0u, 2u})
            volume.faults[member]->remove_all_rules();
        CHECK(volume.read_back(0, blocks));
    }
}

TEST_CASE("an error that does not repeat is counted once and harms nothing")
{
    TestVolume volume({ProfileId::kRaid5, 4, 65536});
    REQUIRE(volume.write(0, 1).ok());
    volume.faults[2]->add_rule({.action = FaultAction::kError, .kinds = kFaultReads, .limit = 1});
    CHECK(volume.read_back(0, 64));
    CHECK(volume.counter(2, MemberCounter::kReadErrors) == 1);
    CHECK(volume.all_counters() == 1);
    CHECK(volume.array->statistics().blocks_reconstructed == 0);
}
