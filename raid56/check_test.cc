// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "base/checksum.h"
#include "tests/support/array_fixture.h"
#include "tests/support/test_seed.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

using Finding = std::tuple<uint64_t, uint32_t, BadBlock::Kind>;

std::set<Finding> check(TestVolume& volume, uint64_t stripes)
{
    std::vector<BadBlock> found;
    REQUIRE(volume.array->check_stripes(TestVolume::kGroup, 0, stripes, found).ok());
    std::set<Finding> all;
    for (const BadBlock& bad : found)
        all.emplace(bad.address.value, bad.member.value - 1, bad.kind);
    REQUIRE(all.size() == found.size());  // none twice
    return all;
}

}  // namespace

TEST_CASE("every bad block is reported once, with its kind and member, and nothing changes")
{
    const uint64_t seed = test_seed();
    INFO("seed ", seed);
    for (const Shape& shape : shapes({4096, 65536})) {
        INFO(describe(shape));
        TestVolume volume(shape, seed);
        constexpr uint64_t kStripes = 5;
        REQUIRE(volume.write(0, kStripes).ok());
        CHECK(check(volume, kStripes).empty());
        std::set<Finding> expected;
        const uint32_t columns = volume.geometry.data_columns + volume.geometry.parity;
        for (int i = 0; i < 12; ++i) {
            const BlockPlace place{volume.prng.below(kStripes),
                                   static_cast<uint32_t>(volume.prng.below(columns)),
                                   static_cast<uint32_t>(volume.prng.below(volume.geometry.rows()))};
            const auto copy = static_cast<uint32_t>(volume.prng.below(volume.geometry.copies));
            const uint64_t address = TestVolume::kGroup.value + offset_of(volume.geometry, place);
            const uint32_t member = volume.spot(place, copy).member;
            bool repeated = false;
            for (const Finding& finding : expected)
                repeated = repeated || (std::get<0>(finding) == address && std::get<1>(finding) == member);
            if (repeated)
                continue;
            const bool latent = i % 3 == 0;
            latent ? volume.latent(place, copy) : volume.rot(place, copy);
            expected.emplace(address, member,
                             latent                                        ? BadBlock::Kind::kReadError
                             : place.column < volume.geometry.data_columns ? BadBlock::Kind::kData
                                                                           : BadBlock::Kind::kParity);
        }
        volume.forget_requests();
        CHECK(check(volume, kStripes + 2) == expected);
        CHECK(volume.requests(IoKind::kWrite) == 0);
        CHECK(volume.all_counters() == 0);
    }
}

TEST_CASE("missing members are reported for what was written, rows never written are skipped")
{
    TestVolume volume({ProfileId::kRaid6, 4, 16384});
    REQUIRE(volume.write_rows(1, 2, 1).ok());
    std::vector<std::byte> junk(kBlockBytes, std::byte{7});
    const TestVolume::Spot never_written = volume.spot({1, 3, 3});
    volume.sims[never_written.member]->poke(never_written.offset, junk);
    CHECK(check(volume, 3).empty());
    volume.remove(2);
    uint32_t column = 0;
    while (volume.spot({1, column, 2}).member != 2)
        ++column;
    CHECK(check(volume, 3) ==
          std::set<Finding>{{TestVolume::kGroup.value + offset_of(volume.geometry, {1, column, 2}), 2,
                             BadBlock::Kind::kMissing}});
}

TEST_CASE("parity that does not follow from its data is found although its checksum agrees")
{
    for (const uint32_t p : {0u, 1u}) {
        TestVolume volume({ProfileId::kRaid6, 3, 16384});
        REQUIRE(volume.write(0, 2).ok());
        const BlockPlace place{1, 3 + p, 0};
        const TestVolume::Spot spot = volume.spot(place);
        std::vector<std::byte> zeros(kBlockBytes);
        volume.sims[spot.member]->poke(spot.offset, zeros);
        const uint64_t address = TestVolume::kGroup.value + offset_of(volume.geometry, place);
        volume.answers[address] = {true, zero_block_checksum()};
        CHECK(check(volume, 2) == std::set<Finding>{{address, spot.member, BadBlock::Kind::kParityMismatch}});
        volume.answers[address] = {};
        CHECK(check(volume, 2) == std::set<Finding>{{address, spot.member, BadBlock::Kind::kParityMismatch}});
    }
}

TEST_CASE("a stripe is read once, by large requests; ranges outside the group are refused")
{
    TestVolume volume({ProfileId::kRaid5, 3, 65536});
    REQUIRE(volume.write(0, 8, 0).ok());
    volume.forget_requests();
    CHECK(check(volume, 8).empty());
    CHECK(volume.requests(IoKind::kRead) == 4);
    std::vector<BadBlock> found;
    const uint64_t stripes = volume.geometry.stripe_count();
    CHECK(volume.array->check_stripes(TestVolume::kGroup, stripes, 1, found).err() == Err::kInvalid);
    CHECK(volume.array->check_stripes(TestVolume::kGroup, 1, stripes, found).err() == Err::kInvalid);
    CHECK(volume.array->check_stripes({4096}, 0, 1, found).err() == Err::kInvalid);
    CHECK(volume.array->check_stripes(TestVolume::kGroup, stripes - 1, 1, found).ok());
}

TEST_CASE(
    "who looks at a stripe beside a writer of its rows sees what was there before, or what is there now")
{
    // The first checksum that is recorded starts a check of the stripe.
    class Beside final : public ChecksumSink {
    public:
        explicit Beside(TestVolume& volume) : volume_(volume) { }
        void record(VolumeAddress address, std::span<const Checksum> written) override
        {
            if (!checker_.joinable())
                checker_ = std::thread([this] {
                    CHECK(volume_.array->check_stripes(TestVolume::kGroup, 0, 1, found).ok());
                    checked = true;
                });
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            overtaken = overtaken || checked;
            volume_.record(address, written);
            ++records;
        }
        bool in_use(VolumeAddress address) override { return volume_.in_use(address); }
        void finish() { checker_.join(); }

        std::vector<BadBlock> found;
        bool overtaken = false;
        uint32_t records = 0;
        std::atomic<bool> checked = false;

    private:
        TestVolume& volume_;
        std::thread checker_;
    };
    for (const Shape& shape : {Shape{ProfileId::kRaid5, 3, 16384}, Shape{ProfileId::kRaid6, 2, 8192},
                               Shape{ProfileId::kRaid1, 1, 16384}}) {
        TestVolume volume(shape);
        const Geometry& geometry = volume.geometry;
        REQUIRE(volume.write(0, 1, 0).ok());
        for (const uint32_t first_row : {0u, 1u}) {
            RowWrite write = volume.prepare(0, 1, first_row, geometry.rows() - first_row, 0);
            Beside beside(volume);
            write.sink = &beside;
            REQUIRE(volume.array->write_rows({&write, 1}).ok());
            CHECK(beside.records == geometry.data_columns + geometry.parity);
            beside.finish();
            CHECK_FALSE(beside.overtaken);
            CHECK(beside.found.empty());
            volume.commit(write);
            CHECK(volume.disk_is_right());
        }
    }
}
