// SPDX-License-Identifier: MIT
#include "journal/fsync_ring.h"

#include <doctest/doctest.h>

#include "tests/support/fsync_fixture.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

using Fixture = FsyncFixture;
using Record = FsyncBytes;

// A batch of one record that is on its way.
std::unique_ptr<FsyncFlight> take_off(FsyncRing& ring, const Record& record, Generation generation = kOpen)
{
    auto flight = ring.begin(1, fsync_record_room(record.size()), generation, kEpoch);
    REQUIRE(flight.ok());
    const std::span<const std::byte> view(record);
    encode_fsync_batch((*flight)->header, {&view, 1}, (*flight)->blocks.span());
    return flight.take();
}

}  // namespace

TEST_CASE("fsync log: after something was refused nothing is logged until that is committed")
{
    Fixture fixture(2, 10);
    FsyncRing ring(*fixture.members, fixture.superblock, 1, 1, kCommitted);
    Status status;
    while (status.ok()) {
        auto flight = ring.begin(1, fsync_record_room(3000), kOpen, kEpoch);
        status = flight.status();
        if (!flight.ok())
            break;
        write_fsync_copies(*fixture.members, **flight);
        REQUIRE(ring.settle(**flight) == FsyncRing::Next::kLanded);
        CHECK(ring.answer(**flight, status));
    }
    CHECK(status.err() == Err::kNoSpace);
    CHECK(ring.begin(1, 8, kOpen, kEpoch).err() == Err::kNoSpace);  // although it would fit
    CHECK(ring.begin(1, 8, {7}, kEpoch).err() == Err::kBusy);
    ring.retire(kCommitted);
    CHECK(ring.begin(1, 8, {7}, kEpoch).err() == Err::kBusy);
    ring.retire(kOpen);
    CHECK(ring.usage().used_blocks == 0);
    CHECK(ring.begin(1, 8, {7}, kEpoch).ok());
}

TEST_CASE("fsync ring: answers keep the order of take-off, and a batch behind a failed one fails")
{
    Fixture fixture;
    FsyncRing ring(*fixture.members, fixture.superblock, 1, 1, kCommitted);
    const Record record = fixture.record(100);
    auto first = take_off(ring, record), second = take_off(ring, record);
    CHECK(ring.begin(1, 8, kOpen, kEpoch).err() == Err::kBusy);  // each member serves one at a time
    for (const auto& copy : first->copies)
        for (const auto& other : second->copies)
            CHECK(copy.member != other.member);
    write_fsync_copies(*fixture.members, *second);
    CHECK(ring.settle(*second) == FsyncRing::Next::kLanded);
    Status result;
    CHECK_FALSE(ring.answer(*second, result));
    auto third = take_off(ring, record);
    write_fsync_copies(*fixture.members, *third);
    CHECK(ring.settle(*third) == FsyncRing::Next::kLanded);
    SUBCASE("the first succeeds")
    {
        write_fsync_copies(*fixture.members, *first);
        CHECK(ring.settle(*first) == FsyncRing::Next::kLanded);
        CHECK_FALSE(ring.answer(*third, result));
        for (FsyncFlight* flight : {first.get(), second.get(), third.get()}) {
            CHECK(ring.answer(*flight, result));
            CHECK(result.ok());
        }
    }
    SUBCASE("the first fails")
    {
        for (FaultDevice* fault : fixture.faults)
            fault->add_rule({.kinds = kFaultWrites});
        FsyncRing::Next next = FsyncRing::Next::kAgain;
        for (int round = 0; round < 4 && next == FsyncRing::Next::kAgain; ++round) {
            write_fsync_copies(*fixture.members, *first);
            next = ring.settle(*first);
        }
        CHECK(next == FsyncRing::Next::kLanded);
        for (FsyncFlight* flight : {first.get(), second.get(), third.get()}) {
            CHECK(ring.answer(*flight, result));
            CHECK(result.err() == Err::kIo);
        }
    }
}

TEST_CASE("fsync ring: a batch in need of another member waits for it, and others wait for the batch")
{
    Fixture fixture(3);
    FsyncRing ring(*fixture.members, fixture.superblock, 0, 1, kCommitted);
    const Record record = fixture.record(100);
    auto first = take_off(ring, record), second = take_off(ring, record), third = take_off(ring, record);
    fixture.faults[0]->add_rule({.kinds = kFaultFlushes});
    REQUIRE(first->copies[0].member == MemberId{1});
    write_fsync_copies(*fixture.members, *first);
    CHECK(ring.settle(*first) == FsyncRing::Next::kWait);
    CHECK(ring.settle(*first) == FsyncRing::Next::kWait);
    write_fsync_copies(*fixture.members, *second);
    CHECK(ring.settle(*second) == FsyncRing::Next::kLanded);
    CHECK(ring.begin(1, 8, kOpen, kEpoch).err() == Err::kBusy);
    CHECK(ring.settle(*first) == FsyncRing::Next::kAgain);
    write_fsync_copies(*fixture.members, *first);
    CHECK(ring.settle(*first) == FsyncRing::Next::kLanded);
    Status result;
    CHECK(ring.answer(*first, result));
    CHECK(result.ok());
    CHECK(ring.answer(*second, result));
    write_fsync_copies(*fixture.members, *third);
    CHECK(ring.settle(*third) == FsyncRing::Next::kLanded);
    CHECK(ring.answer(*third, result));
    FsyncScan scan = fixture.scan();
    CHECK(all_records(scan).size() == 3);
}

TEST_CASE(
    "fsync ring: behind a batch that found no room for its second copy nothing takes off before a commit")
{
    Fixture fixture(3, 8);
    fixture.superblock.members[2].fsync_log_bytes = 4 * kBlockBytes;
    FsyncRing ring(*fixture.members, fixture.superblock, 1, 1, kCommitted);
    const Record record = fixture.record(100), large = fixture.record(9000);
    Status result;
    // On members 1 and 2, then 3 and 1, then 2 and 3, which has no room for a large one then.
    for (int round = 0; round < 3; ++round) {
        auto flight = take_off(ring, record);
        write_fsync_copies(*fixture.members, *flight);
        REQUIRE(ring.settle(*flight) == FsyncRing::Next::kLanded);
        REQUIRE(ring.answer(*flight, result));
        CHECK(result.ok());
    }
    fixture.faults[1]->add_rule({.kinds = kFaultWrites});
    auto flight = take_off(ring, large);
    REQUIRE(flight->copies[1].member == MemberId{2});
    write_fsync_copies(*fixture.members, *flight);
    CHECK(ring.settle(*flight) == FsyncRing::Next::kLanded);
    CHECK(ring.answer(*flight, result));
    CHECK(result.err() == Err::kNoSpace);
    CHECK(ring.begin(1, 8, kOpen, kEpoch).err() == Err::kNoSpace);  // although a small one would fit
    CHECK(ring.begin(1, 8, {7}, kEpoch).err() == Err::kBusy);
    ring.retire(kOpen);
    CHECK(ring.begin(1, 8, {7}, kEpoch).ok());
}
