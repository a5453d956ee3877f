// SPDX-License-Identifier: MIT
// Scrubbing: the first pass repairs all that redundancy has, the second finds nothing, and only the members
// that were wrong are charged.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "base/checksum.h"
#include "raid56/parity.h"
#include "tests/support/array_fixture.h"
#include "tests/support/scrub_fixture.h"
#include "tests/support/test_seed.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

struct Fault {
    BlockPlace place;
    uint32_t copy = 0;
    bool latent = false;
};

void spoil(TestVolume& volume, const Fault& fault)
{
    fault.latent ? volume.latent(fault.place, fault.copy) : volume.rot(fault.place, fault.copy);
}

// What is charged to a member for these faults, and what the report says of it.
struct Charges {
    uint64_t read_errors = 0, corruption = 0, parity = 0;

    [[nodiscard]] uint64_t sum() const { return read_errors + corruption + parity; }
};

Charges charges_of(const TestVolume& volume, uint32_t member, std::span<const Fault> faults)
{
    Charges charges;
    for (const Fault& fault : faults) {
        if (volume.spot(fault.place, fault.copy).member != member)
            continue;
        if (fault.latent)
            ++charges.read_errors;
        else if (fault.place.column < volume.geometry.data_columns)
            ++charges.corruption;
        else
            ++charges.parity;
    }
    return charges;
}

// What became of the faults that a scrub met.
enum class Fate : uint8_t { kRepaired, kSeen, kLost };

// The counters of all members after one scrub, and the figures of that scrub.
void check_charges(const TestVolume& volume, std::span<const Fault> faults, const ScrubReport& report,
                   Fate fate = Fate::kRepaired)
{
    for (uint32_t member = 0; member < volume.member_count(); ++member) {
        INFO("member ", member + 1);
        const Charges charges = charges_of(volume, member, faults);
        const uint64_t repaired = fate == Fate::kRepaired ? charges.sum() : 0;
        CHECK(volume.counter(member, MemberCounter::kReadErrors) == charges.read_errors);
        CHECK(volume.counter(member, MemberCounter::kCorruption) == charges.corruption);
        CHECK(volume.counter(member, MemberCounter::kParity) == charges.parity);
        CHECK(volume.counter(member, MemberCounter::kRepaired) == repaired);
        const auto at = report.members.find(TestVolume::member_id(member));
        const ScrubMemberNumbers found = at == report.members.end() ? ScrubMemberNumbers() : at->second;
        CHECK(found[ScrubMemberNumber::kReadErrors] == charges.read_errors);
        CHECK(found[ScrubMemberNumber::kWrong] == charges.corruption + charges.parity);
        CHECK(found[ScrubMemberNumber::kHeads] == 0);
        CHECK(found[ScrubMemberNumber::kCorrected] == repaired);
        CHECK(found[ScrubMemberNumber::kLost] == (fate == Fate::kLost ? charges.sum() : 0));
    }
}

void check_all_repaired(TestVolume& volume, uint64_t stripes, std::span<const Fault> faults)
{
    for (const Fault& fault : faults)
        spoil(volume, fault);
    const ScrubReport report = scrub(volume, stripes);
    CHECK(report.repaired == faults.size());
    CHECK(report.unrepaired == 0);
    CHECK(report.adopted == 0);
    CHECK(report.lost.empty());
    check_charges(volume, faults, report);
    uint64_t verified = 0;
    for (const auto& [member, found] : report.members)
        verified += found[ScrubMemberNumber::kVerified];
    CHECK(verified == report.data_blocks + report.parity_blocks);
    CHECK(volume.disk_is_right());
    check_quiet(volume, stripes);
}

// A tree node in a mirrored group: every copy of it.
ScrubReport scrub_node(TestVolume& volume, const ReadPiece& node, ScrubMode mode = ScrubMode::kRepair)
{
    CopiedBlocks blocks{node.address, {node.checksums, node.block_count}, {}};
    ScrubReport report;
    CHECK(volume.array->scrub_copies(std::span(&blocks, 1), mode, 1, report).ok());
    CHECK(blocks.result.ok() == report.lost.empty());
    return report;
}

std::vector<std::vector<std::byte>> images(const TestVolume& volume)
{
    std::vector<std::vector<std::byte>> all;
    for (uint32_t member = 0; member < volume.member_count(); ++member)
        all.push_back(volume.image(member));
    return all;
}

// Rounds of the random runs: 500, or what COWRAID_SCRUB_ROUNDS says.
uint32_t rounds()
{
    const char* text = std::getenv("COWRAID_SCRUB_ROUNDS");
    return text != nullptr ? static_cast<uint32_t>(std::strtoul(text, nullptr, 10)) : 500;
}

// Free in the last commit, and its address.
uint64_t set_free(TestVolume& volume, const BlockPlace& place)
{
    const uint64_t address = TestVolume::kGroup.value + offset_of(volume.geometry, place);
    volume.free_addresses.insert(address);
    return address;
}

}  // namespace

TEST_CASE("scrub: every single fault and every pair of faults of a row is repaired in one pass")
{
    uint32_t cases = 0;
    for (const Shape& shape : parity_shapes(6, {4096, 16384})) {
        const uint32_t columns = shape.data_columns + (shape.profile == ProfileId::kRaid6 ? 2 : 1);
        for (uint32_t first = 0; first < columns; ++first) {
            for (uint32_t second = first; second < columns; ++second) {
                if (second != first && shape.profile != ProfileId::kRaid6)
                    continue;
                for (uint32_t mixture = 0; mixture < 4; ++mixture) {
                    INFO(describe(shape), " columns ", first, " ", second, " mixture ", mixture);
                    TestVolume volume(shape, first * 8 + second + 1);
                    REQUIRE(volume.write(0, 3).ok());
                    const uint32_t row = volume.geometry.rows() - 1;
                    std::vector<Fault> faults = {{{1, first, row}, 0, mixture % 2 != 0}};
                    if (second != first)
                        faults.push_back({{1, second, row}, 0, mixture / 2 != 0});
                    check_all_repaired(volume, 3, faults);
                    ++cases;
                }
            }
        }
    }
    CHECK(cases > 400);
}

namespace {

constexpr ProfileId kMirrorProfiles[] = {ProfileId::kRaid1, ProfileId::kRaid1c3, ProfileId::kRaid1c4,
                                         ProfileId::kRaid10};

Shape mirror_shape(ProfileId profile, uint32_t chunk_bytes)
{
    return {profile, profile == ProfileId::kRaid10 ? 2u : 1u, chunk_bytes};
}

// The copies of a set, all rotten, all unreadable, or in turn.
std::vector<Fault> faults_of(const BlockPlace& place, uint32_t copies, uint32_t set, uint32_t mixture)
{
    std::vector<Fault> faults;
    for (uint32_t copy = 0; copy < copies; ++copy)
        if ((set >> copy & 1) != 0)
            faults.push_back({place, copy, mixture == 2 ? copy % 2 != 0 : mixture != 0});
    return faults;
}

}  // namespace

TEST_CASE("scrub: every copy, and every set of copies that leaves one, is repaired in one pass")
{
    uint32_t cases = 0;
    for (const ProfileId profile : kMirrorProfiles)
        for (const uint32_t chunk : {4096u, 16384u}) {
            const Shape shape = mirror_shape(profile, chunk);
            const uint32_t copies = TestVolume(shape).geometry.copies;
            for (uint32_t set = 1; set + 1 < 1u << copies; ++set)
                for (uint32_t mixture = 0; mixture < 3; ++mixture) {
                    INFO(describe(shape), " set ", set, " mixture ", mixture);
                    TestVolume volume(shape, set + 1);
                    REQUIRE(volume.write(0, 3).ok());
                    const BlockPlace place{1, volume.geometry.data_columns - 1, volume.geometry.rows() - 1};
                    check_all_repaired(volume, 3, faults_of(place, copies, set, mixture));
                    ++cases;
                }
        }
    CHECK(cases == 2 * 3 * (2 + 6 + 14 + 2));
}

TEST_CASE("scrub: the same of tree nodes, each block of which has other copies left")
{
    for (const ProfileId profile : kMirrorProfiles)
        for (const uint32_t chunk : {4096u, 16384u}) {
            const Shape shape = mirror_shape(profile, chunk);
            const uint32_t copies = TestVolume(shape).geometry.copies;
            for (uint32_t set = 1; set + 1 < 1u << copies; ++set)
                for (uint32_t mixture = 0; mixture < 3; ++mixture) {
                    INFO(describe(shape), " set ", set, " mixture ", mixture);
                    TestVolume volume(shape, set + 1);
                    REQUIRE(volume.write(0, 8, 0).ok());
                    constexpr uint64_t kFirst = 3;
                    const ReadPiece node = volume.piece(kFirst, kNodeBlocks);
                    std::vector<Fault> faults;
                    for (uint32_t block = 0; block < kNodeBlocks; ++block) {
                        const uint32_t turned =
                            (set << block % copies | set >> (copies - block % copies)) & ((1u << copies) - 1);
                        const BlockPlace place = place_of(volume.geometry, (kFirst + block) * kBlockBytes);
                        for (const Fault& fault : faults_of(place, copies, turned, mixture))
                            faults.push_back(fault);
                    }
                    for (const Fault& fault : faults)
                        spoil(volume, fault);
                    volume.knows_nothing = true;  // nobody is asked
                    const ScrubReport report = scrub_node(volume, node);
                    CHECK(report.repaired == faults.size());
                    CHECK(report.unrepaired == 0);
                    CHECK(report.lost.empty());
                    check_charges(volume, faults, report);
                    CHECK(volume.disk_is_right());
                    const uint64_t counted = volume.all_counters();
                    volume.forget_requests();
                    CHECK(scrub_node(volume, node).repaired == 0);
                    CHECK(volume.requests(IoKind::kWrite) == 0);
                    CHECK(volume.all_counters() == counted);
                }
        }
}

TEST_CASE("scrub: a node of which a block has no copy left is lost, the members that had it are charged")
{
    for (const ProfileId profile : kMirrorProfiles)
        for (uint32_t mixture = 0; mixture < 3; ++mixture) {
            TestVolume volume(mirror_shape(profile, 16384));
            const uint32_t copies = volume.geometry.copies;
            INFO(describe(volume.shape), " mixture ", mixture);
            REQUIRE(volume.write(0, 4, 0).ok());
            const ReadPiece node = volume.piece(0, kNodeBlocks);
            const BlockPlace place = place_of(volume.geometry, kBlockBytes);
            const std::vector<Fault> faults = faults_of(place, copies, (1u << copies) - 1, mixture);
            for (const Fault& fault : faults)
                spoil(volume, fault);
            const auto before = images(volume);
            const ScrubReport report = scrub_node(volume, node);
            CHECK(report.lost == std::vector<VolumeAddress>{node.address + kBlockBytes});
            CHECK(report.repaired + report.unrepaired == 0);
            check_charges(volume, faults, report, Fate::kLost);
            CHECK(images(volume) == before);
        }
}

TEST_CASE("scrub: random sets of faults within redundancy")
{
    const uint64_t seed = test_seed();
    Prng prng(seed);
    const std::vector<Shape> all = shapes({4096, 16384, 65536});
    for (uint32_t round = 0; round < rounds(); ++round) {
        const Shape& shape = all[prng.below(all.size())];
        INFO(describe(shape), " seed ", seed, " round ", round);
        TestVolume volume(shape, seed + round);
        const Geometry& geometry = volume.geometry;
        constexpr uint64_t kStripes = 4;
        REQUIRE(volume.write(0, kStripes).ok());
        std::vector<Fault> faults;
        for (uint64_t stripe = 0; stripe < kStripes; ++stripe) {
            for (uint32_t row = 0; row < geometry.rows(); ++row) {
                if (!prng.chance(1, 3))
                    continue;
                // Of a mirror one copy stays.
                const uint32_t most = geometry.parity > 0 ? geometry.parity : geometry.copies - 1;
                const auto column = static_cast<uint32_t>(prng.below(geometry.data_columns));
                std::vector<uint32_t> taken;
                for (uint32_t fault = 0; fault < most; ++fault) {
                    const auto cell = static_cast<uint32_t>(
                        prng.below(geometry.parity > 0 ? geometry.columns() : geometry.copies));
                    if (std::find(taken.begin(), taken.end(), cell) != taken.end())
                        continue;
                    taken.push_back(cell);
                    const bool parity = geometry.parity > 0;
                    faults.push_back(
                        {{stripe, parity ? cell : column, row}, parity ? 0 : cell, prng.chance(1, 2)});
                }
            }
        }
        check_all_repaired(volume, kStripes, faults);
    }
}

TEST_CASE("scrub: a whole member of garbage, and what was verified is counted")
{
    for (const Shape& shape : parity_shapes(6, {16384})) {
        INFO(describe(shape));
        TestVolume volume(shape);
        const Geometry& geometry = volume.geometry;
        constexpr uint64_t kStripes = 5;
        REQUIRE(volume.write(0, kStripes).ok());
        std::vector<Fault> faults;
        for (uint64_t stripe = 0; stripe < kStripes; ++stripe)
            for (uint32_t column = 0; column < geometry.columns(); ++column)
                for (uint32_t row = 0; row < geometry.rows(); ++row)
                    if (volume.spot({stripe, column, row}).member == 1)
                        faults.push_back({{stripe, column, row}});
        check_all_repaired(volume, kStripes, faults);
        const ScrubReport report = scrub(volume, kStripes + 2);
        CHECK(report.data_blocks == kStripes * geometry.stripe_data_blocks());
        CHECK(report.parity_blocks == kStripes * geometry.rows() * geometry.parity);
    }
}

TEST_CASE("scrub: beyond redundancy blocks in use are named once, and nothing on any member changes")
{
    for (const Shape& shape : shapes({16384})) {
        INFO(describe(shape));
        TestVolume volume(shape);
        const Geometry& geometry = volume.geometry;
        REQUIRE(volume.write(0, 2, 0).ok());
        std::vector<VolumeAddress> expected;
        std::vector<Fault> faults;
        for (uint32_t fault = 0; fault <= std::max(geometry.parity, geometry.copies - 1); ++fault) {
            const BlockPlace place{1, geometry.parity > 0 ? fault : 0, 2};
            faults.push_back({place, geometry.parity > 0 ? 0 : fault});
            spoil(volume, faults.back());
            if (place.column < geometry.data_columns && (geometry.parity > 0 || fault == 0))
                expected.push_back(TestVolume::kGroup + offset_of(geometry, place));
        }
        const auto before = images(volume);
        const ScrubReport report = scrub(volume, 2);
        CHECK(report.lost == expected);
        CHECK(report.repaired == 0);
        CHECK(report.unrepaired == 0);
        CHECK(images(volume) == before);
        check_charges(volume, faults, report, Fate::kLost);
    }
}

TEST_CASE("scrub: looking only counts what it finds, and writes nothing")
{
    for (const Shape& shape : {Shape{ProfileId::kRaid6, 4, 16384}, Shape{ProfileId::kRaid1, 1, 16384}}) {
        TestVolume volume(shape);
        REQUIRE(volume.write(0, 2).ok());
        const Fault faults[] = {{{1, 0, 1}}, {{0, 0, 2}, 0, true}};
        for (const Fault& fault : faults)
            spoil(volume, fault);
        const auto before = images(volume);
        const ScrubReport report = scrub(volume, 2, ScrubMode::kLook);
        check_charges(volume, faults, report, Fate::kSeen);
        CHECK(report.unrepaired == 2);
        CHECK(report.repaired == 0);
        CHECK(report.lost.empty());
        CHECK(volume.all_counters() == 2);
        CHECK(images(volume) == before);
        CHECK(scrub(volume, 2).repaired == 2);
        check_quiet(volume, 2);
    }
}

// Free blocks and parity of a row, more than parity could solve, and parity that is recorded wrong.
TEST_CASE("scrub: looking counts the blocks that a repair would write then, also those that nobody misses")
{
    const uint64_t seed = test_seed();
    Prng prng(seed);
    uint64_t beyond_parity = 0;
    for (uint32_t round = 0; round < 200; ++round) {
        const std::vector<Shape> all = parity_shapes(6, {16384});
        const Shape& shape = all[prng.below(all.size())];
        INFO(describe(shape), " seed ", seed, " round ", round);
        TestVolume volume(shape, seed + round);
        const Geometry& geometry = volume.geometry;
        REQUIRE(volume.write(0, 2, 0).ok());
        for (uint32_t row = 0; row < geometry.rows(); ++row) {
            uint32_t faults = 0;
            for (uint32_t column = 1; column < geometry.columns(); ++column) {
                if (column < geometry.data_columns)
                    set_free(volume, {1, column, row});
                if (!prng.chance(1, 2))
                    continue;
                ++faults;
                spoil(volume, {{1, column, row}, 0, prng.chance(1, 4)});
            }
            beyond_parity += faults > geometry.parity ? 1 : 0;
            const Checksum wrong = zero_block_checksum();
            if (prng.chance(1, 4))
                volume.record(TestVolume::kGroup + offset_of(geometry, {1, geometry.data_columns, row}),
                              std::span(&wrong, 1));
        }
        const auto before = images(volume);
        const ScrubReport looked = scrub(volume, 2, ScrubMode::kLook);
        CHECK(looked.repaired + looked.adopted == 0);
        CHECK(images(volume) == before);
        const ScrubReport repaired = scrub(volume, 2);
        CHECK(looked.unrepaired == repaired.repaired);
        CHECK(repaired.unrepaired + repaired.unsettled == 0);
        CHECK(looked.lost.empty());
        CHECK(repaired.lost.empty());
        for (const auto& [member, found] : repaired.members) {
            CHECK(looked.members.at(member)[ScrubMemberNumber::kWrong] == found[ScrubMemberNumber::kWrong]);
            CHECK(looked.members.at(member)[ScrubMemberNumber::kReadErrors] ==
                  found[ScrubMemberNumber::kReadErrors]);
        }
        check_quiet(volume, 2);
        CHECK(scrub(volume, 2, ScrubMode::kLook).unrepaired == 0);
    }
    CHECK(beyond_parity > 50);
}

// A crash with a full write-intent log leaves code words of which the free blocks are recorded otherwise.
TEST_CASE("scrub: a row that fits its parity is adopted, nothing of it is written, nobody is charged")
{
    for (const Shape& shape : parity_shapes(6, {16384})) {
        if (shape.data_columns < 2)
            continue;
        INFO(describe(shape));
        TestVolume volume(shape);
        REQUIRE(volume.write(0, 2, 0).ok());
        const BlockPlace free_block{1, 1, 2};
        const uint64_t address = TestVolume::kGroup.value + offset_of(volume.geometry, free_block);
        volume.free_addresses.insert(address);
        volume.start_partial_writes();
        // What is recorded is from before.
        std::map<uint64_t, BlockExpectation> old;
        for (uint32_t column = 0; column < volume.geometry.columns(); ++column)
            if (column == 1 || column >= shape.data_columns)
                old[TestVolume::kGroup.value + offset_of(volume.geometry, {1, column, 2})] = {
                    true, volume.checksum_at({1, column, 2})};
        REQUIRE(volume.overwrite((address - TestVolume::kGroup.value) / kBlockBytes, 1).ok());
        REQUIRE(volume.commit_all().ok());
        volume.answers = old;
        const auto before = images(volume);
        ScrubReport report = scrub(volume, 2);
        CHECK(report.adopted == old.size());
        CHECK(report.repaired == 0);
        CHECK(report.lost.empty());
        CHECK(images(volume) == before);
        CHECK(volume.all_counters() == 0);
        CHECK(volume.disk_is_right());
        check_quiet(volume, 2);
        // The same, but the free block cannot be read: it gets what fits parity, which stays.
        volume.answers = old;
        volume.latent(free_block);
        report = scrub(volume, 2);
        CHECK(report.repaired == 1);
        CHECK(report.lost.empty());
        CHECK(images(volume) == before);
        CHECK(volume.all_counters() == 2);
        CHECK(volume.counter(volume.spot(free_block).member, MemberCounter::kReadErrors) == 1);
        check_quiet(volume, 2);
    }
}

TEST_CASE("scrub: parity that does not follow from its data is rewritten although its checksum agrees")
{
    for (const uint32_t p : {0u, 1u}) {
        TestVolume volume({ProfileId::kRaid6, 3, 16384});
        REQUIRE(volume.write(0, 2).ok());
        const BlockPlace place{1, 3 + p, 0};
        const TestVolume::Spot spot = volume.spot(place);
        std::vector<std::byte> zeros(kBlockBytes);
        volume.sims[spot.member]->poke(spot.offset, zeros);
        const Checksum right = volume.checksum_at(place);
        const Checksum wrong = zero_block_checksum();
        volume.record(TestVolume::kGroup + offset_of(volume.geometry, place), std::span(&wrong, 1));
        const ScrubReport report = scrub(volume, 2);
        CHECK(report.repaired == 1);
        CHECK(report.adopted == 1);
        CHECK(volume.checksum_at(place) == right);
        CHECK(volume.all_counters() == 0);
        CHECK(volume.disk_is_right());
        check_quiet(volume, 2);
    }
}

TEST_CASE("scrub: with members away the rest is verified and repaired as far as redundancy goes")
{
    TestVolume volume({ProfileId::kRaid6, 4, 16384});
    REQUIRE(volume.write(0, 6).ok());
    volume.remove(2);
    check_quiet(volume, 6);
    std::vector<Fault> faults;
    for (uint64_t stripe = 0; stripe < 6; ++stripe) {
        const Fault fault{{stripe, static_cast<uint32_t>(stripe), 1}, 0, stripe % 2 == 0};
        if (volume.spot(fault.place).member != 2)
            faults.push_back(fault);
    }
    for (const Fault& fault : faults)
        spoil(volume, fault);
    const ScrubReport report = scrub(volume, 6);
    CHECK(report.repaired == faults.size());
    CHECK(report.lost.empty());
    check_charges(volume, faults, report);
    CHECK(report.members.at(TestVolume::member_id(2))[ScrubMemberNumber::kUnverified] == report.unverified);
    CHECK(volume.disk_is_right({2}));
    check_quiet(volume, 6);
}

TEST_CASE("scrub: rows without a block in use are left as they are")
{
    TestVolume volume({ProfileId::kRaid5, 3, 16384});
    REQUIRE(volume.write(0, 2, 0).ok());
    for (uint32_t column = 0; column < 3; ++column)
        volume.free_addresses.insert(TestVolume::kGroup.value + offset_of(volume.geometry, {1, column, 3}));
    volume.rot({1, 0, 3});
    volume.rot({1, 3, 3});
    const auto before = images(volume);
    check_quiet(volume, 2);
    CHECK(images(volume) == before);
}

TEST_CASE("scrub: stripes are read once, by few large requests, and ranges outside the group are refused")
{
    for (const ProfileId profile : {ProfileId::kRaid5, ProfileId::kRaid6, ProfileId::kRaid1c3}) {
        TestVolume other({profile, profile == ProfileId::kRaid1c3 ? 1u : 3u, 65536});
        REQUIRE(other.write(0, 8, 0).ok());
        other.forget_requests();
        const ScrubReport report = scrub(other, 8);
        const Geometry& geometry = other.geometry;
        CHECK(report.data_blocks == uint64_t{8} * 16 * geometry.data_columns * geometry.copies);
        CHECK(report.parity_blocks == uint64_t{8} * 16 * geometry.parity);
        CHECK(other.requests(IoKind::kRead) == geometry.columns());
        CHECK(other.requests(IoKind::kWrite) == 0);
    }
    TestVolume volume({ProfileId::kRaid5, 3, 65536});
    ScrubReport none;
    TestSink sink(volume);
    const uint64_t stripes = volume.geometry.stripe_count();
    for (const StripeRows& bad :
         {StripeRows{stripes, 0, 1}, StripeRows{0, 0, 17}, StripeRows{0, 16, 1}, StripeRows{0, 3, 0}})
        CHECK(volume.array->scrub_rows(TestVolume::kGroup, std::span(&bad, 1), ScrubMode::kRepair, sink, none)
                  .err() == Err::kInvalid);
    CHECK(volume.array->scrub_rows({4096}, {}, ScrubMode::kRepair, sink, none).err() == Err::kInvalid);
}

TEST_CASE("scrub: beside writers of the same rows nothing is charged, repaired or lost")
{
    for (const ProfileId profile : {ProfileId::kRaid5, ProfileId::kRaid6}) {
        TestVolume volume({profile, 4, 16384});
        constexpr uint64_t kStripes = 4;
        REQUIRE(volume.write(0, kStripes).ok());
        volume.start_partial_writes();
        std::atomic<bool> ended = false;
        ScrubReport total;
        uint32_t passes = 0;
        std::thread scrubber([&] {
            TestSink sink(volume);
            while (!ended || passes < 2) {
                std::vector<StripeRows> rows;
                for (uint64_t stripe = 0; stripe < kStripes; ++stripe)
                    rows.push_back({stripe, 0, volume.geometry.rows()});
                CHECK(
                    volume.array->scrub_rows(TestVolume::kGroup, rows, ScrubMode::kRepair, sink, total).ok());
                ++passes;
            }
        });
        overwrite_often(volume, kStripes, 600, 7);
        ended = true;
        scrubber.join();
        CHECK(total.repaired == 0);
        CHECK(total.unrepaired == 0);
        CHECK(total.adopted == 0);
        CHECK(total.lost.empty());
        CHECK(volume.all_counters() == 0);
        CHECK(volume.disk_is_right());
        MESSAGE("passes beside writers: ", passes);
    }
}

TEST_CASE("scrub: a damaged block of a transaction is not given another content")
{
    for (const bool latent : {false, true}) {
        TestVolume volume({ProfileId::kRaid5, 3, 16384});
        REQUIRE(volume.write(0, 1, 0).ok());
        // Written by a transaction that is no commit yet; beyond redundancy with its parity.
        const BlockPlace place{0, 1, 2};
        TestSink sink(volume);
        sink.others.insert(set_free(volume, place));
        latent ? volume.latent(place) : volume.rot(place);
        volume.rot({0, 3, 2});
        const Checksum wanted = volume.checksum_at(place);
        const auto before = images(volume);
        ScrubReport report = scrub(volume, sink, 1);
        CHECK(report.adopted == 0);
        CHECK(report.repaired == 0);
        CHECK(report.lost.empty());
        CHECK(volume.checksum_at(place) == wanted);
        CHECK(images(volume) == before);
        // Who reads it is told so.
        ReadPiece piece =
            volume.piece(static_cast<uint32_t>(offset_of(volume.geometry, place) / kBlockBytes), 1);
        CHECK(volume.array->read(std::span(&piece, 1)).err() == Err::kTooManyFaults);
        // When nobody needs it any more it is settled.
        sink.others.clear();
        report = scrub(volume, sink, 1);
        CHECK(report.adopted > 0);
        check_quiet(volume, 1);
    }
}

TEST_CASE("scrub: without leave to record only what was recorded right is repaired")
{
    TestVolume volume({ProfileId::kRaid6, 3, 16384});
    REQUIRE(volume.write(0, 1, 0).ok());
    TestSink sink(volume);
    sink.records = false;
    // Rows 0: rot. 1: parity that is recorded wrong. 2: free blocks that cannot be had as recorded.
    volume.rot({0, 0, 0});
    volume.rot({0, 4, 0});
    const Checksum wrong = zero_block_checksum();
    volume.record(TestVolume::kGroup + offset_of(volume.geometry, {0, 3, 1}), std::span(&wrong, 1));
    for (const uint32_t column : {0u, 1u})
        set_free(volume, {0, column, 2});
    for (const uint32_t column : {0u, 1u, 3u})
        volume.rot({0, column, 2});
    ScrubReport report = scrub(volume, sink, 1);
    CHECK(report.repaired == 2);
    CHECK(report.adopted == 0);
    CHECK(report.lost.empty());
    // Both parities of row 2 do not fit its free blocks; parity of row 1 does, and nothing of it is wrong.
    CHECK(report.unrepaired == 2);
    CHECK(report.unsettled == 1);
    sink.records = true;
    report = scrub(volume, sink, 1);
    CHECK(report.adopted > 0);
    CHECK(report.repaired == 2);
    CHECK(report.unrepaired == 0);
    check_quiet(volume, 1);
}

TEST_CASE("scrub: a row with live log entries is not recorded anew before all members are flushed")
{
    TestVolume volume({ProfileId::kRaid5, 3, 16384});
    REQUIRE(volume.write(0, 1, 0).ok());
    volume.start_partial_writes();
    // Block 2 of row 0 is in use, block 1 free; block 0 is written in place.
    const uint64_t free_block = set_free(volume, {0, 1, 0});
    REQUIRE(volume.overwrite(0, 1).ok());
    // A crash before left another content of the free block than is recorded, and parity that fits it.
    const Checksum wrong = zero_block_checksum();
    const Checksum parity = volume.checksum_at({0, 3, 0});
    volume.answers[free_block] = {true, wrong};
    volume.answers[TestVolume::kGroup.value + offset_of(volume.geometry, {0, 3, 0})] = {true, wrong};
    TestSink sink(volume);
    CHECK(scrub(volume, sink, 1).adopted == 0);
    REQUIRE(volume.commit_all().ok());
    CHECK(scrub(volume, sink, 1).adopted == 2);
    CHECK(volume.checksum_at({0, 3, 0}) == parity);
    check_quiet(volume, 1);
}

// A power cut may leave what a repair wrote on the member and not on the one that takes its place.
TEST_CASE("scrub: what is recorded anew of a member that is copied is written to its successor, too")
{
    constexpr MemberId kTarget{100};
    for (const Shape& shape : {Shape{ProfileId::kRaid5, 3, 16384}, Shape{ProfileId::kRaid6, 4, 16384}}) {
        CAPTURE(describe(shape));
        TestVolume volume(shape);
        REQUIRE(volume.write(0, 2, 0).ok());
        auto sim = std::make_unique<SimDevice>("target", 128 * kMiB);
        const SimDevice& target = *sim;
        volume.set.add(kTarget, std::move(sim), {});
        const BlockPlace parity{1, volume.geometry.data_columns, 2};
        const TestVolume::Spot spot = volume.spot(parity);
        volume.set.set_mirror(TestVolume::member_id(spot.member), kTarget);
        volume.answers[TestVolume::kGroup.value + offset_of(volume.geometry, parity)] = {true, 1};
        TestSink sink(volume);
        const ScrubReport report = scrub(volume, sink, 2);
        CHECK(report.adopted == 1);
        CHECK(report.repaired == 0);
        std::vector<std::byte> have(kBlockBytes), wanted(kBlockBytes);
        target.peek(spot.offset, have);
        volume.sims[spot.member]->peek(spot.offset, wanted);
        CHECK((have == wanted));
    }
}

TEST_CASE("scrub: what is copied while the member is not there counts as not copied")
{
    constexpr MemberId kTarget{100};
    TestVolume volume({ProfileId::kRaid5, 3, 16384});
    REQUIRE(volume.write(0, 2, 0).ok());
    volume.set.add(kTarget, std::make_unique<SimDevice>("target", 128 * kMiB), {});
    const MemberCopy copy{TestVolume::member_id(0), kTarget};
    volume.set.set_mirror(copy.source, copy.target);
    TestSink sink(volume);
    const std::vector<StripeRows> rows{{0, 0, volume.geometry.rows()}, {1, 0, volume.geometry.rows()}};
    ScrubReport report;
    REQUIRE(volume.array->copy_rows(TestVolume::kGroup, rows, copy, sink, report).ok());
    CHECK(report.unsettled == 0);
    volume.remove(0);
    REQUIRE(volume.array->copy_rows(TestVolume::kGroup, rows, copy, sink, report).ok());
    CHECK(report.unsettled > 0);
}

TEST_CASE("scrub: what the source of a copy does not say, and stays in service, counts as not copied")
{
    constexpr MemberId kTarget{100};
    constexpr uint64_t kStripes = 2;
    for (const Shape& shape : {Shape{ProfileId::kSingle, 1, 16384}, Shape{ProfileId::kRaid0, 3, 16384},
                               Shape{ProfileId::kRaid1, 1, 16384}, Shape{ProfileId::kRaid5, 3, 16384}}) {
        CAPTURE(describe(shape));
        TestVolume volume(shape);
        REQUIRE(volume.write(0, kStripes, 0).ok());
        auto sim = std::make_unique<SimDevice>("target", 128 * kMiB);
        const SimDevice& target = *sim;
        volume.set.add(kTarget, std::move(sim), {});
        const MemberCopy copy{TestVolume::member_id(0), kTarget};
        volume.set.set_mirror(copy.source, copy.target);
        volume.set.set_quorums({{{copy.source}, 1}});
        if (shape.profile == ProfileId::kRaid5)
            volume.remove(2);
        if (shape.profile == ProfileId::kRaid1)
            volume.rot({1, 0, 2}, volume.spot({1, 0, 2}, 0).member == 0 ? 1 : 0);
        TestSink sink(volume);
        std::vector<StripeRows> rows;
        for (uint64_t stripe = 0; stripe < kStripes; ++stripe)
            rows.push_back({stripe, 0, volume.geometry.rows()});
        const size_t rule = volume.faults[0]->add_rule({.kinds = kFaultReads, .error = Err::kMemberGone});
        ScrubReport gone, back;
        REQUIRE(volume.array->copy_rows(TestVolume::kGroup, rows, copy, sink, gone).ok());
        CHECK(gone.unsettled > 0);
        CHECK(gone.lost.empty());
        CHECK(volume.set.device(copy.source) != nullptr);
        if (volume.geometry.parity == 0) {
            const ReadPiece node = volume.piece(volume.geometry.rows() + 2, 1);
            CopiedBlocks blocks{node.address, {node.checksums, node.block_count}, {}};
            ScrubReport report;
            CHECK(volume.array->copy_copies({&blocks, 1}, copy, 1, report).ok());
            CHECK(report.lost.size() == report.unsettled);
        }
        volume.faults[0]->remove_rule(rule);
        REQUIRE(volume.array->copy_rows(TestVolume::kGroup, rows, copy, sink, back).ok());
        CHECK(back.unsettled == 0);
        CHECK(back.lost.empty());
        std::vector<std::byte> have(kBlockBytes);
        for (uint64_t block = 0; block < kStripes * volume.geometry.stripe_data_blocks(); ++block)
            for (uint32_t number = 0; number < volume.geometry.copies; ++number) {
                const BlockPlace place = place_of(volume.geometry, block * kBlockBytes);
                const TestVolume::Spot spot = volume.spot(place, number);
                if (spot.member != 0)
                    continue;
                target.peek(spot.offset, have);
                CHECK((have == *volume.content_at(place)));
            }
    }
}
