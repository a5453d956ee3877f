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
std::unique_ptr<RecordWrite> start_write(FsyncRing& ring, const Record& record, Generation generation = kOpen)
{
    auto write = ring.begin(1, fsync_record_room(record.size()), generation, kEpoch);
    REQUIRE(write.ok());
    const std::span<const std::byte> view(record);
    encode_fsync_batch((*write)->header, {&view, 1}, (*write)->blocks.span());
    return write.take();
}

}  // namespace

TEST_CASE("fsync log: after something was refused nothing is logged until that is committed")
{
    Fixture fixture(2, 10);
    FsyncRing ring(*fixture.members, fixture.superblock, 1, 1, kCommitted);
    Status status;
    while (status.ok()) {
        auto write = ring.begin(1, fsync_record_room(3000), kOpen, kEpoch);
        status = write.status();
        if (!write.ok())
            break;
        write_fsync_copies(*fixture.members, **write);
        REQUIRE(ring.settle(**write) == FsyncRing::Next::kFinished);
        CHECK(ring.answer(**write, status));
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
    auto first = start_write(ring, record), second = start_write(ring, record);
    CHECK(ring.begin(1, 8, kOpen, kEpoch).err() == Err::kBusy);  // each member serves one at a time
    for (const auto& copy : first->copies)
        for (const auto& other : second->copies)
            CHECK(copy.member != other.member);
    write_fsync_copies(*fixture.members, *second);
    CHECK(ring.settle(*second) == FsyncRing::Next::kFinished);
    Status result;
    CHECK_FALSE(ring.answer(*second, result));
    auto third = start_write(ring, record);
    write_fsync_copies(*fixture.members, *third);
    CHECK(ring.settle(*third) == FsyncRing::Next::kFinished);
    SUBCASE("the first succeeds")
    {
        write_fsync_copies(*fixture.members, *first);
        CHECK(ring.settle(*first) == FsyncRing::Next::kFinished);
        CHECK_FALSE(ring.answer(*third, result));
        for (RecordWrite* write : {first.get(), second.get(), third.get()}) {
            CHECK(ring.answer(*write, result));
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
        CHECK(next == FsyncRing::Next::kFinished);
        for (RecordWrite* write : {first.get(), second.get(), third.get()}) {
            CHECK(ring.answer(*write, result));
            CHECK(result.err() == Err::kIo);
        }
    }
}

TEST_CASE("fsync ring: a batch in need of another member waits for it, and others wait for the batch")
{
    Fixture fixture(3);
    FsyncRing ring(*fixture.members, fixture.superblock, 0, 1, kCommitted);
    const Record record = fixture.record(100);
    auto first = start_write(ring, record), second = start_write(ring, record),
         third = start_write(ring, record);
    fixture.faults[0]->add_rule({.kinds = kFaultFlushes});
    REQUIRE(first->copies[0].member == MemberId{1});
    write_fsync_copies(*fixture.members, *first);
    CHECK(ring.settle(*first) == FsyncRing::Next::kWait);
    CHECK(ring.settle(*first) == FsyncRing::Next::kWait);
    write_fsync_copies(*fixture.members, *second);
    CHECK(ring.settle(*second) == FsyncRing::Next::kFinished);
    CHECK(ring.begin(1, 8, kOpen, kEpoch).err() == Err::kBusy);
    CHECK(ring.settle(*first) == FsyncRing::Next::kAgain);
    write_fsync_copies(*fixture.members, *first);
    CHECK(ring.settle(*first) == FsyncRing::Next::kFinished);
    Status result;
    CHECK(ring.answer(*first, result));
    CHECK(result.ok());
    CHECK(ring.answer(*second, result));
    write_fsync_copies(*fixture.members, *third);
    CHECK(ring.settle(*third) == FsyncRing::Next::kFinished);
    CHECK(ring.answer(*third, result));
    FsyncScan scan = fixture.scan();
    CHECK(all_records(scan).size() == 3);
}

TEST_CASE("fsync ring: behind a batch that found no room for its second copy nothing begins before a commit")
{
    Fixture fixture(3, 8);
    fixture.superblock.members[2].fsync_log_bytes = 4 * kBlockBytes;
    FsyncRing ring(*fixture.members, fixture.superblock, 1, 1, kCommitted);
    const Record record = fixture.record(100), large = fixture.record(9000);
    Status result;
    // On members 1 and 2, then 3 and 1, then 2 and 3, which has no room for a large one then.
    for (int round = 0; round < 3; ++round) {
        auto write = start_write(ring, record);
        write_fsync_copies(*fixture.members, *write);
        REQUIRE(ring.settle(*write) == FsyncRing::Next::kFinished);
        REQUIRE(ring.answer(*write, result));
        CHECK(result.ok());
    }
    fixture.faults[1]->add_rule({.kinds = kFaultWrites});
    auto write = start_write(ring, large);
    REQUIRE(write->copies[1].member == MemberId{2});
    write_fsync_copies(*fixture.members, *write);
    CHECK(ring.settle(*write) == FsyncRing::Next::kFinished);
    CHECK(ring.answer(*write, result));
    CHECK(result.err() == Err::kNoSpace);
    CHECK(ring.begin(1, 8, kOpen, kEpoch).err() == Err::kNoSpace);  // although a small one would fit
    CHECK(ring.begin(1, 8, {7}, kEpoch).err() == Err::kBusy);
    ring.retire(kOpen);
    CHECK(ring.begin(1, 8, {7}, kEpoch).ok());
}

TEST_CASE("fsync ring: a batch never has fewer copies because a member leaves")
{
    Fixture fixture(2);
    FsyncRing ring(*fixture.members, fixture.superblock, 1, 1, kCommitted);
    fixture.members->set_leaving({1}, true);
    CHECK(ring.begin(1, 8, kOpen, kEpoch).err() == Err::kNoSpace);
    fixture.members->set_leaving({1}, false);
    ring.retire(kOpen);
    auto write = ring.begin(1, 8, {7}, kEpoch);
    REQUIRE(write.ok());
    CHECK((*write)->copies.size() == 2);
}

TEST_CASE("fsync ring: the target of a replacement is no place for a copy, and none is missed there")
{
    Fixture fixture(3);
    fixture.superblock.replace = {{1}, {3}, 1};
    fixture.members->set_leaving({3}, true);
    fixture.members->leave_out({2});
    FsyncRing ring(*fixture.members, fixture.superblock, 1, 1, kCommitted);
    auto write = ring.begin(1, 8, kOpen, kEpoch);
    REQUIRE(write.ok());
    CHECK((*write)->copies.size() == 1);
}

TEST_CASE(
    "fsync ring: blocks are held only without live records, and a batch goes to other members meanwhile")
{
    Fixture fixture(3, 40);
    FsyncRing ring(*fixture.members, fixture.superblock, 1, 1, kCommitted);
    const DeviceOffset begin{fixture.superblock.members[0].fsync_log_offset};
    const auto write = [&](Generation generation) {
        auto batch = start_write(ring, fixture.record(3000), generation);
        write_fsync_copies(*fixture.members, *batch);
        Status status;
        CHECK(ring.settle(*batch) == FsyncRing::Next::kFinished);
        CHECK(ring.answer(*batch, status));
        CHECK(status.ok());
        return std::any_of(batch->copies.begin(), batch->copies.end(),
                           [](const RecordWrite::Copy& copy) { return copy.member == MemberId{1}; });
    };
    CHECK(write(kOpen));
    CHECK_FALSE(ring.hold({1}, begin, kBlockBytes));
    CHECK_FALSE(ring.hold({9}, begin, kBlockBytes));
    ring.retire(kOpen);
    REQUIRE(ring.hold({1}, begin, uint64_t{40} * kBlockBytes));
    for (int batch = 0; batch < 6; ++batch)
        CHECK_FALSE(write({7}));
    // Where there is no other member the batch waits.
    ring.retire({7});
    for (const uint32_t index : {1u, 2u})
        REQUIRE(
            ring.hold({index + 1}, {fixture.superblock.members[index].fsync_log_offset}, kBlockBytes * 40));
    CHECK(ring.begin(1, 100, {8}, 1).err() == Err::kBusy);
    for (const uint32_t index : {1u, 2u})
        ring.release({index + 1}, {fixture.superblock.members[index].fsync_log_offset});
    ring.release({1}, begin);
    CHECK((write({8}) || write({8}) || write({8})));
}
