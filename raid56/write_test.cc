// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include "base/checksum.h"
#include "tests/support/array_fixture.h"
#include "tests/support/test_seed.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

// Some stripes in one call, single rows of others in another.
void fill(TestVolume& volume)
{
    const uint32_t rows = volume.geometry.rows();
    std::vector<RowWrite> writes{volume.prepare(0, 3, 0, rows, 10), volume.prepare(5, 1, 0, rows, 100)};
    if (rows > 2) {
        writes.push_back(volume.prepare(4, 1, 0, 1, 30));
        writes.push_back(volume.prepare(4, 1, 1, rows - 1, 30));
    } else {
        writes.push_back(volume.prepare(3, 2, 0, rows, 30));
    }
    REQUIRE(volume.array->write_rows(writes).ok());
    for (const RowWrite& write : writes) {
        CHECK(write.result.ok());
        volume.commit(write);
    }
}

// What the array tells.
struct Sums final : ChecksumSink {
    std::vector<Checksum> all;
    void record(VolumeAddress, std::span<const Checksum> checksums) override
    {
        all.insert(all.end(), checksums.begin(), checksums.end());
    }
    bool in_use(VolumeAddress) override { return true; }
};

}  // namespace

TEST_CASE("what is written is on the members, parity included, and reads back at any alignment")
{
    const uint64_t seed = test_seed();
    INFO("seed ", seed);
    for (const Shape& shape : shapes({4096, 16384, 65536})) {
        INFO(describe(shape));
        TestVolume volume(shape, seed);
        fill(volume);
        CHECK(volume.disk_is_right());
        const uint64_t blocks = 3 * volume.geometry.stripe_data_blocks();
        CHECK(volume.read_back(0, static_cast<uint32_t>(blocks)));
        for (int i = 0; i < 12; ++i) {
            const uint64_t first = volume.prng.below(blocks);
            CHECK(volume.read_back(first, static_cast<uint32_t>(volume.prng.between(1, blocks - first))));
        }
        CHECK(volume.all_counters() == 0);
    }
}

TEST_CASE("the largest chunk, at the far end of a column and across a gap between slot runs")
{
    TestVolume volume({ProfileId::kRaid6, 3, 1048576});
    const uint64_t last = volume.geometry.stripe_count() - 1;
    REQUIRE(volume.write(last, 1).ok());
    const uint64_t border = TestVolume::kSlotBytes / 1048576;
    REQUIRE(volume.write(border - 2, 4).ok());
    CHECK(volume.disk_is_right());
    CHECK(volume.read_back((border - 1) * 3 * 256 + 100, 1500));
    CHECK(volume.read_back(last * 3 * 256, 3 * 256));
}

TEST_CASE("a run of stripes is one request per member, also when it comes as several writes")
{
    for (const Shape& shape : shapes({4096, 65536})) {
        INFO(describe(shape));
        TestVolume volume(shape);
        const uint64_t sets = volume.geometry.sets;
        REQUIRE(volume.write(0, 12 * sets).ok());
        for (const CountingDevice* device : volume.counts) {
            const auto writes = device->entries(IoKind::kWrite);
            REQUIRE(writes.size() == 1);
            CHECK(writes[0].bytes == 12 * uint64_t{shape.chunk_bytes});
        }
        volume.forget_requests();
        const uint32_t rows = volume.geometry.rows();
        std::vector<RowWrite> writes{volume.prepare(14 * sets, 2 * sets, 0, rows, 0),
                                     volume.prepare(12 * sets, 2 * sets, 0, rows, 0)};
        for (uint64_t set = 0; rows > 1 && set < sets; ++set) {
            writes.push_back(volume.prepare(16 * sets + set, 1, 1, rows - 1, 0));
            writes.push_back(volume.prepare(16 * sets + set, 1, 0, 1, 50));
        }
        REQUIRE(volume.array->write_rows(writes).ok());
        for (const CountingDevice* device : volume.counts)
            CHECK(device->entries(IoKind::kWrite).size() == 1);
        for (const RowWrite& write : writes)
            volume.commit(write);
        CHECK(volume.disk_is_right());
    }
}

TEST_CASE("a large call is cut so that memory for parity stays bounded")
{
    TestVolume volume({ProfileId::kRaid5, 4, 65536});
    REQUIRE(volume.write(0, 192, 0).ok());  // 48 MiB of data
    for (const CountingDevice* device : volume.counts) {
        const auto writes = device->entries(IoKind::kWrite);
        REQUIRE(writes.size() == 2);
        CHECK(writes[0].bytes == 8 * kMiB);
        CHECK(writes[1].bytes == 4 * kMiB);
    }
    CHECK(volume.disk_is_right());
}

TEST_CASE("pads are zeros with the checksum of zeros, and few vectors")
{
    TestVolume volume({ProfileId::kRaid6, 4, 65536});
    RowWrite write = volume.prepare(0, 4, 0, 16, 100);
    Sums sums;
    write.sink = &sums;
    REQUIRE(volume.array->write_rows(std::span(&write, 1)).ok());
    CHECK(sums.all == std::vector<Checksum>(4 * 6 * 16, zero_block_checksum()));
    for (const CountingDevice* device : volume.counts)
        CHECK(device->entries(IoKind::kWrite).at(0).vectors <= 4);
    volume.commit(write);
    CHECK(volume.disk_is_right());
    const ArrayStatistics statistics = volume.array->statistics();
    CHECK(statistics.pad_blocks == 4 * 4 * 16);
    CHECK(statistics.data_bytes_written == 0);
    CHECK(statistics.member_bytes_written == 4 * 6 * 65536);
    CHECK(statistics.full_stripes == 4);
    CHECK(statistics.full_rows == 0);
}

TEST_CASE("statistics tell full stripes from full rows")
{
    TestVolume volume({ProfileId::kRaid5, 3, 65536});
    REQUIRE(volume.write(0, 5, 0).ok());
    REQUIRE(volume.write_rows(6, 3, 4, 0).ok());
    const ArrayStatistics statistics = volume.array->statistics();
    CHECK(statistics.full_stripes == 5);
    CHECK(statistics.full_rows == 4);
    CHECK(statistics.pad_blocks == 0);
    CHECK(statistics.data_bytes_written == (5 * 16 + 4) * 3 * kBlockBytes);
    CHECK(statistics.member_bytes_written == (5 * 16 + 4) * 4 * kBlockBytes);
}

TEST_CASE("every set of failing members within tolerance is carried and taken out of service")
{
    for (const Shape& shape : shapes({16384})) {
        INFO(describe(shape));
        const TestVolume sample(shape);
        const uint32_t tolerance = sample.array->group_at(TestVolume::kGroup)->tolerance;
        const uint32_t n = sample.member_count();
        for (uint32_t first = 0; first < n; ++first) {
            for (uint32_t second = first; second < n; ++second) {
                if (n > 8 && (first + second) % 5 != 0)
                    continue;
                const bool carried = (first == second ? 1u : 2u) <= tolerance;
                TestVolume volume(shape);
                volume.faults[first]->add_rule({.action = FaultAction::kError, .kinds = kFaultWrites});
                volume.faults[second]->add_rule({.action = FaultAction::kError, .kinds = kFaultWrites});
                const uint64_t stripes = 2 * volume.geometry.sets;
                const Status status = volume.write(2, stripes);
                CHECK(status == (carried ? Status() : Status(Err::kTooManyFaults)));
                for (uint32_t member = 0; member < n; ++member) {
                    const bool bad = member == first || member == second;
                    CHECK(volume.set.failed(TestVolume::member_id(member)) == (bad && carried));
                    CHECK(volume.counter(member, MemberCounter::kWriteErrors) == bad);
                }
                if (carried) {
                    CHECK(volume.disk_is_right({first, second}));
                    const uint32_t stripe_blocks = volume.geometry.stripe_data_blocks();
                    CHECK(
                        volume.read_back(2 * stripe_blocks, static_cast<uint32_t>(stripes) * stripe_blocks));
                    CHECK(volume.array->missing_columns(*volume.array->group_at(TestVolume::kGroup)) ==
                          (first == second ? 1 : 2));
                }
            }
        }
    }
}

TEST_CASE("writes go on without missing members until there are too many")
{
    TestVolume volume({ProfileId::kRaid6, 4, 16384});
    volume.remove(1);
    CHECK(volume.write(0, 2).ok());
    volume.faults[4]->add_rule({.action = FaultAction::kGone});
    CHECK(volume.write(2, 2).ok());
    CHECK(volume.set.failed(TestVolume::member_id(4)));
    CHECK(volume.counter(4, MemberCounter::kWriteErrors) == 0);  // it was pulled, it did not err
    CHECK(volume.disk_is_right({1, 4}));
    CHECK(volume.counts[1]->entries(IoKind::kWrite).empty());
    volume.faults[0]->add_rule({.action = FaultAction::kError, .kinds = kFaultWrites});
    CHECK(volume.write(4, 1).err() == Err::kTooManyFaults);
    CHECK_FALSE(volume.set.failed(TestVolume::member_id(0)));
    volume.remove(0);
    volume.forget_requests();
    CHECK(volume.write(6, 1).err() == Err::kTooManyFaults);
    CHECK(volume.requests(IoKind::kWrite) == 0);
    CHECK(volume.disk_is_right({0, 1, 4}));
}

TEST_CASE("members that fail different writes of one call count together; what is complete is good")
{
    TestVolume volume({ProfileId::kRaid5, 3, 16384});
    // Two members fail, each in another stripe.
    const auto break_stripe = [&](uint64_t stripe, uint32_t column) {
        const TestVolume::Spot spot = volume.spot({stripe, column, 0});
        volume.faults[spot.member]->add_rule({.action = FaultAction::kError,
                                              .kinds = kFaultWrites,
                                              .begin = spot.offset,
                                              .end = spot.offset + 16384});
        return spot.member;
    };
    const uint32_t first = break_stripe(0, 0);
    const uint32_t second = break_stripe(8, 2);
    REQUIRE(first != second);
    RowWrite writes[] = {volume.prepare(0, 1, 0, 4, 0), volume.prepare(4, 1, 0, 4, 0),
                         volume.prepare(8, 1, 0, 4, 0)};
    CHECK(volume.array->write_rows(writes).err() == Err::kTooManyFaults);
    CHECK(writes[0].result.err() == Err::kTooManyFaults);
    CHECK(writes[1].result.ok());
    CHECK(writes[2].result.err() == Err::kTooManyFaults);
    CHECK_FALSE(volume.set.failed(TestVolume::member_id(first)));
    CHECK_FALSE(volume.set.failed(TestVolume::member_id(second)));
    CHECK(volume.set.stopped());
}

TEST_CASE("a read-only array and rows outside the group are refused before anything is written")
{
    TestVolume volume({ProfileId::kRaid5, 2, 16384});
    const uint64_t stripes = volume.geometry.stripe_count();
    CHECK(volume.write(stripes, 1).err() == Err::kInvalid);
    CHECK(volume.write(stripes - 1, 2).err() == Err::kInvalid);
    CHECK(volume.write_rows(0, 2, 3).err() == Err::kInvalid);
    RowWrite rows_of_two = volume.prepare(0, 2, 0, 2, 0);
    CHECK(volume.array->write_rows(std::span(&rows_of_two, 1)).err() == Err::kInvalid);
    RowWrite elsewhere = volume.prepare(0, 1, 0, 4, 0);
    elsewhere.group_address = TestVolume::kGroup + kBlockBytes;
    CHECK(volume.array->write_rows(std::span(&elsewhere, 1)).err() == Err::kInvalid);
    volume.array->set_read_only(true);
    CHECK(volume.write(0, 1).err() == Err::kReadOnly);
    CHECK(volume.requests(IoKind::kWrite) == 0);
}
