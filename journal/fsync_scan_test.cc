// SPDX-License-Identifier: MIT
#include "journal/fsync_scan.h"

#include <doctest/doctest.h>

#include <cstring>

#include "base/checksum.h"
#include "tests/support/fsync_fixture.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

using Fixture = FsyncFixture;
using Record = FsyncBytes;

}  // namespace

TEST_CASE("fsync scan: behind a lost record nothing counts, be it the first or another")
{
    for (uint64_t victim = 1; victim <= 6; ++victim) {
        CAPTURE(victim);
        Fixture fixture;
        FsyncLog log = fixture.log();
        const std::vector<Record> records = append_some(fixture, log, 6);
        FsyncScan before = fixture.scan();
        REQUIRE(before.batches().size() == 6);
        for (const auto& copy : before.batches()[victim - 1].copies) {
            const std::byte noise[kBlockBytes] = {};
            fixture.disks[copy.member.value - 1]->poke(copy.offset.value, noise);
        }
        FsyncScan scan = fixture.scan();
        CHECK(scan.batches().size() == victim - 1);
        CHECK(scan.left_out().size() == 6 - victim);
        CHECK(scan.lost_acknowledged() == (victim < 6));  // nobody knows of the last one
        CHECK(
            all_records(scan) ==
            std::vector<Record>(records.begin(), records.begin() + static_cast<std::ptrdiff_t>(victim - 1)));
        CHECK(scan.next_sequence() == (victim == 6 ? 6 : 7));
    }
}

TEST_CASE("fsync scan: lost records of an earlier live generation are a gap, lost dead ones are not")
{
    Fixture fixture;
    FsyncLog log = fixture.log();
    append_some(fixture, log, 3, {6});
    const std::vector<Record> younger = append_some(fixture, log, 3, {7});
    {
        FsyncScan before = fixture.scan();
        REQUIRE(before.batches().size() == 6);
        for (size_t index = 0; index < 3; ++index)
            for (const auto& copy : before.batches()[index].copies) {
                const std::byte noise[kBlockBytes] = {};
                fixture.disks[copy.member.value - 1]->poke(copy.offset.value, noise);
            }
    }
    FsyncScan scan = fixture.scan();
    CHECK(scan.batches().empty());
    CHECK(scan.left_out().size() == 3);
    CHECK(scan.lost_acknowledged());
    CHECK(scan.commit_at_least() == Generation{7});
    FsyncScan later(*fixture.members, fixture.superblock, {6});
    CHECK(all_records(later) == younger);
    CHECK_FALSE(later.lost_acknowledged());
}

TEST_CASE("fsync scan: a record that was under way with those behind it was not acknowledged")
{
    Fixture fixture;
    FsyncRing ring(*fixture.members, fixture.superblock, 1, 1, {5});
    const Record record = fixture.record(50);
    const std::span<const std::byte> content(record);
    std::vector<std::unique_ptr<RecordWrite>> writes;
    const auto begin = [&] {
        auto write = ring.begin(1, fsync_record_room(record.size()), kOpen, kEpoch);
        REQUIRE(write.ok());
        encode_fsync_batch((*write)->header, {&content, 1}, (*write)->blocks.span());
        writes.push_back(write.take());
    };
    const auto finish = [&](RecordWrite& write) {
        write_fsync_copies(*fixture.members, write);
        CHECK(ring.settle(write) == FsyncRing::Next::kFinished);
        Status result;
        return ring.answer(write, result) && result.ok();
    };
    begin();
    CHECK(finish(*writes[0]));
    begin();
    begin();
    CHECK_FALSE(finish(*writes[2]));  // and the second is not written
    FsyncScan scan = fixture.scan();
    CHECK(scan.batches().size() == 1);
    CHECK(scan.left_out().size() == 1);
    CHECK_FALSE(scan.lost_acknowledged());
    CHECK(finish(*writes[1]));
    Status result;
    CHECK(ring.answer(*writes[2], result));
    begin();
    CHECK(writes[3]->header.acknowledged == 4);
}

TEST_CASE("fsync scan: copies that contradict each other end what counts before them")
{
    Fixture fixture(2);
    const Record same = fixture.record(50), one = fixture.record(60), other = fixture.record(60);
    for (const uint32_t without : {1u, 2u}) {
        fixture.attach({without});
        FsyncLog log = fixture.log();
        REQUIRE(log.append(same, kOpen, kEpoch).ok());
        REQUIRE(log.append(without == 1 ? one : other, kOpen, kEpoch).ok());
        REQUIRE(log.append(same, kOpen, kEpoch).ok());
    }
    fixture.attach();
    FsyncScan scan = fixture.scan();
    CHECK(all_records(scan) == std::vector<Record>{same});
    CHECK(scan.left_out().size() == 3);
}

TEST_CASE("fsync scan: members that commits have skipped have no say; what cannot be read makes the next "
          "commit skip a generation")
{
    Fixture fixture(2);
    FsyncLog log = fixture.log();
    const std::vector<Record> records = append_some(fixture, log, 10);
    fixture.superblock.members[0].state = MemberState::kMissing;
    {
        FsyncScan scan = fixture.scan();
        CHECK(all_records(scan) == records);
        CHECK(scan.batches()[0].copies.size() == 1);
        CHECK(scan.commit_at_least() == Generation{7});
    }
    fixture.superblock.members[0].state = MemberState::kPresent;
    const uint64_t begin = fixture.superblock.members[1].fsync_log_offset;
    fixture.faults[1]->add_rule({.kinds = kFaultReads, .begin = begin, .end = begin + 3 * kBlockBytes});
    FsyncScan scan = fixture.scan();
    CHECK(all_records(scan) == records);
    CHECK(scan.commit_at_least() == Generation{7});
    CHECK(fixture.errors(2, MemberCounter::kReadErrors) >= 1);
    CHECK(scan.batches().back().copies.size() == 2);
}

TEST_CASE("fsync scan: a copy that goes bad after the scan is passed over while another is right")
{
    Fixture fixture(2);
    FsyncLog log = fixture.log();
    const Record record = fixture.record(9000);
    REQUIRE(log.append(record, kOpen, kEpoch).ok());
    FsyncScan scan = fixture.scan();
    REQUIRE(scan.batches().size() == 1);
    for (const auto& copy : scan.batches()[0].copies) {
        CHECK(all_records(scan) == std::vector<Record>{record});
        const std::byte noise[] = {std::byte{1}, std::byte{2}, std::byte{3}};
        fixture.disks[copy.member.value - 1]->poke(copy.offset.value + 5000, noise);
    }
    CHECK(scan.read(scan.batches()[0]).err() == Err::kIo);
    CHECK(fixture.errors(1, MemberCounter::kCorruption) + fixture.errors(2, MemberCounter::kCorruption) >= 2);
}

TEST_CASE("fsync scan: forged blocks under right checksums do no harm")
{
    Prng prng(31);
    size_t readable = 0, left_out = 0;
    for (int round = 0; round < 300; ++round) {
        Fixture fixture(3, 40);
        FsyncLog log = fixture.log();
        const std::vector<Record> records = append_some(fixture, log, 8);
        FsyncScan before = fixture.scan();
        for (uint64_t piece = prng.between(1, 4); piece > 0; --piece) {
            const auto& batch = before.batches()[prng.below(before.batches().size())];
            const auto& copy = batch.copies[prng.below(2)];
            SimDevice& disk = *fixture.disks[copy.member.value - 1];
            std::byte block[kBlockBytes];
            disk.peek(copy.offset.value, block);
            const size_t at = prng.between(offsetof(DiskFsyncBlock, epoch), sizeof(DiskFsyncBlock) + 3);
            block[at] = static_cast<std::byte>(prng.below(prng.chance(1, 2) ? 10 : 256));
            const le64 checksum(checksum_of(std::span<const std::byte>(block).subspan(sizeof(le64))));
            std::memcpy(block, &checksum, sizeof checksum);
            disk.poke(copy.offset.value, block);
        }
        FsyncScan scan = fixture.scan();
        CHECK(scan.commit_at_least() <= Generation{7});
        CHECK(scan.next_sequence() <= kMaxFsyncSequence + kMaxFsyncContentBytes);
        uint64_t next = 1;
        for (const FsyncScan::Batch& batch : scan.batches()) {
            CHECK(batch.header.sequence == next);
            next = batch.header.end_sequence();
            readable += scan.read(batch).ok() ? 1 : 0;
        }
        left_out += scan.left_out().size();
        FsyncRing ring(*fixture.members, fixture.superblock, 1, scan.next_sequence(), {7});
        CHECK(ring.begin(1, 8, {8}, kEpoch).ok() == (scan.next_sequence() <= kMaxFsyncSequence));
    }
    CHECK(readable > 500);
    CHECK(left_out > 200);
}

TEST_CASE("fsync scan: blocks of different batches do not make a copy")
{
    Fixture fixture(2);
    FsyncLog log = fixture.log();
    const std::vector<Record> records{fixture.record(9000), fixture.record(9000)};
    for (const Record& record : records)
        REQUIRE(log.append(record, kOpen, kEpoch).ok());
    FsyncScan before = fixture.scan();
    REQUIRE(before.batches().size() == 2);
    for (uint32_t copy = 0; copy < 2; ++copy) {
        SimDevice& disk = *fixture.disks[before.batches()[0].copies[copy].member.value - 1];
        std::byte second[kBlockBytes];
        disk.peek(before.batches()[0].copies[copy].offset.value + kBlockBytes, second);
        disk.poke(before.batches()[1].copies[copy].offset.value + kBlockBytes, second);
        FsyncScan scan = fixture.scan();
        CHECK(scan.batches().size() == (copy == 0 ? 2 : 1));
        CHECK(scan.batches().back().copies.size() == (copy == 0 ? 1 : 2));
        CHECK(all_records(scan) == std::vector<Record>(records.begin(), records.end() - copy));
    }
}

TEST_CASE("fsync scan: a damaged block may be whole at another time, so the next commit skips a generation")
{
    Fixture fixture(2);
    FsyncLog log = fixture.log();
    append_some(fixture, log, 2);
    CHECK(fixture.scan().commit_at_least() == kOpen);
    const std::byte noise[] = {std::byte{1}};
    fixture.disks[0]->poke(fixture.superblock.members[0].fsync_log_offset + 2000, noise);
    CHECK(fixture.scan().commit_at_least() == Generation{7});
}
