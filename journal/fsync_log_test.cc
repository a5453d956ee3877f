// SPDX-License-Identifier: MIT
#include "journal/fsync_log.h"

#include <doctest/doctest.h>

#include <map>

#include "tests/support/fsync_fixture.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

using Fixture = FsyncFixture;
using Record = FsyncBytes;

}  // namespace

TEST_CASE("fsync log: records are durable when append returns, whichever m members are lost")
{
    for (uint32_t tolerance = 1; tolerance <= 2; ++tolerance)
        for (uint32_t lost = 1; lost <= 4; ++lost) {
            Fixture fixture;
            FsyncLog log = fixture.log(tolerance);
            const std::vector<Record> records = append_some(fixture, log, 60);
            fixture.crash(tolerance == 1 ? std::vector{lost} : std::vector{lost, lost % 4 + 1});
            FsyncScan scan = fixture.scan();
            CHECK(all_records(scan) == records);
            CHECK(scan.left_out().empty());
            CHECK(scan.next_sequence() == 61);
            // What a member that is away holds must be dead before numbers are given again.
            CHECK(scan.commit_at_least() == Generation{7});
        }
}

TEST_CASE("fsync log: an append is one durable write on m + 1 members, and all members take their turn")
{
    for (uint32_t tolerance = 0; tolerance <= 2; ++tolerance) {
        Fixture fixture(5);
        FsyncLog log = fixture.log(tolerance);
        const IoStatistics before = io_statistics();
        append_some(fixture, log, 50);
        const IoStatistics after = io_statistics();
        CHECK(after.writes - before.writes == 50 * (tolerance + 1));
        CHECK(after.flushes == before.flushes);
        FsyncScan scan = fixture.scan();
        CHECK(scan.commit_at_least() == kOpen);
        std::map<uint32_t, size_t> copies;
        for (const FsyncScan::Batch& batch : scan.batches()) {
            CHECK(batch.copies.size() == tolerance + 1);
            for (const auto& copy : batch.copies)
                ++copies[copy.member.value];
        }
        REQUIRE(copies.size() == 5);
        for (const auto& [member, count] : copies)
            CHECK(count == 10 * (tolerance + 1));
    }
}

TEST_CASE("fsync log: records of any length up to the longest")
{
    Fixture fixture(3, 1000);
    FsyncLog log = fixture.log();
    std::vector<Record> records;
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{kFsyncRoomBytes} - sizeof(DiskFsyncRecord),
                               size_t{kFsyncRoomBytes}, size_t{100000}, size_t{kMaxFsyncRecordBytes}}) {
        records.push_back(fixture.record(bytes));
        REQUIRE(log.append(records.back(), kOpen, kEpoch).ok());
    }
    CHECK(log.append(fixture.record(kMaxFsyncRecordBytes + 1), kOpen, kEpoch).err() == Err::kTooBig);
    fixture.crash();
    FsyncScan scan = fixture.scan();
    CHECK(all_records(scan) == records);
}

TEST_CASE("fsync log: a full ring refuses until the newest generation is committed, for many rounds")
{
    Fixture fixture(4, 60);
    FsyncLog log = fixture.log();
    std::vector<Record> records;
    Generation open = kOpen;
    uint64_t refusals = 0;
    for (int round = 0; round < 2000; ++round) {
        records.push_back(fixture.record(fixture.prng.below(9000)));
        const Status status = log.append(records.back(), open, kEpoch);
        if (status.ok())
            continue;
        REQUIRE(status.err() == Err::kNoSpace);
        records.pop_back();
        ++refusals;
        CHECK(log.usage().used_blocks > 50);
        CHECK(log.usage().room_blocks == 60);
        // Even what would fit: it came later.
        CHECK(log.append({}, open, kEpoch).err() == Err::kNoSpace);
        fixture.crash();
        FsyncScan scan(*fixture.members, fixture.superblock, {open.value - 1});
        CHECK(all_records(scan) == records);
        CHECK(scan.commit_at_least() == open);
        records.clear();
        log.~FsyncLog();
        new (&log) FsyncLog(*fixture.members, fixture.superblock, 1, scan.next_sequence(), open);
        open = open.next();
    }
    CHECK(refusals > 20);
}

TEST_CASE("fsync log: room comes back with the commit, and dead records do not")
{
    Fixture fixture(3, 40);
    FsyncLog log = fixture.log();
    Generation open = kOpen;
    std::vector<Record> live = append_some(fixture, log, 8, open);
    for (int round = 0; round < 300; ++round) {
        const std::vector<Record> next = append_some(fixture, log, 3, open.next());
        {
            FsyncScan scan(*fixture.members, fixture.superblock, {open.value - 1});
            std::vector<Record> both = live;
            both.insert(both.end(), next.begin(), next.end());
            CHECK(all_records(scan) == both);
        }
        FsyncScan scan(*fixture.members, fixture.superblock, open);
        CHECK(all_records(scan) == next);
        log.retire(open);
        live = next;
        open = open.next();
    }
    log.retire(open);
    CHECK(log.usage().used_blocks == 0);
}

TEST_CASE("fsync log: no generation comes behind a younger one or behind its commit")
{
    Fixture fixture;
    FsyncLog log = fixture.log();
    CHECK(log.append({}, kCommitted, kEpoch).err() == Err::kStale);
    append_some(fixture, log, 2, {6});
    append_some(fixture, log, 2, {7});
    CHECK(log.append({}, {6}, kEpoch).err() == Err::kStale);
    log.retire({6});
    append_some(fixture, log, 1, {8});
    CHECK(log.append({}, {7}, kEpoch).err() == Err::kStale);
    CHECK(log.counts().records == 5);
}

TEST_CASE("fsync log: records of the logs' epoch count, whatever epochs mounts have stamped; others do not")
{
    Fixture fixture;
    FsyncLog log = fixture.log();
    const std::vector<Record> records = append_some(fixture, log, 5);
    fixture.superblock.epochs = {{kEpoch + 2, kOpen}, {kEpoch + 1, kOpen}};
    {
        FsyncScan scan = fixture.scan();
        CHECK(all_records(scan) == records);
    }
    fixture.superblock.log_epoch = kEpoch + 1;
    FsyncScan scan = fixture.scan();
    CHECK(scan.batches().empty());
    CHECK(scan.next_sequence() == 6);
}

TEST_CASE("fsync log: a batch that a member failed to take goes to another")
{
    for (const uint32_t kind : {kFaultWrites, kFaultFlushes}) {
        Fixture fixture;
        FsyncLog log = fixture.log();
        fixture.faults[1]->add_rule({.kinds = kind});
        const std::vector<Record> records = append_some(fixture, log, 12);
        CHECK(fixture.members->failed({2}));
        CHECK(fixture.errors(2, MemberCounter::kWriteErrors) == 1);
        fixture.crash({2});
        FsyncScan scan = fixture.scan();
        CHECK(all_records(scan) == records);
        for (const FsyncScan::Batch& batch : scan.batches())
            CHECK(batch.copies.size() == 2);
    }
}

TEST_CASE("fsync log: fewer than m + 1 members take what there is; with none left it is an error")
{
    Fixture fixture(3);
    FsyncLog log = fixture.log(2);
    std::vector<Record> records = append_some(fixture, log, 3);
    for (const uint32_t index : {0u, 1u}) {
        fixture.faults[index]->add_rule({.kinds = kFaultWrites});
        const std::vector<Record> more = append_some(fixture, log, 3);
        records.insert(records.end(), more.begin(), more.end());
    }
    {
        fixture.disks[0]->drop_cache();
        FsyncScan scan = fixture.scan();
        CHECK(all_records(scan) == records);
        CHECK(scan.batches().back().copies.size() == 1);
    }
    fixture.faults[2]->add_rule({.kinds = kFaultFlushes});
    CHECK(log.append({}, kOpen, kEpoch).err() == Err::kIo);
    CHECK(log.append({}, kOpen, kEpoch).err() == Err::kIo);
}
