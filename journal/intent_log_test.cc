// SPDX-License-Identifier: MIT
#include "journal/intent_log.h"

#include <doctest/doctest.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>

#include "base/buffer.h"
#include "base/checksum.h"
#include "journal/intent_scan.h"
#include "journal/log_life.h"
#include "sim/borrowed_device.h"
#include "sim/fault_device.h"
#include "sim/sim_device.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr uint64_t kIntentEpoch = 77;
constexpr uint64_t kLogBytes = 160 * kBlockBytes;

// Members with a small log each; entries of generated content.
struct IntentFixture {
    Superblock superblock;
    std::vector<std::unique_ptr<SimDevice>> disks;
    std::vector<FaultDevice*> faults;
    MemberSet members;
    Prng prng{11};

    explicit IntentFixture(uint32_t member_count = 4)
    {
        superblock.volume_uuid = uuid_random();
        superblock.generation = {5};
        superblock.root.generation = {5};
        superblock.epochs = {{kIntentEpoch, {1}}};
        superblock.log_epoch = kIntentEpoch;
        for (uint32_t id = 1; id <= member_count; ++id) {
            MemberRecord record;
            record.id = {id};
            record.intent_log_offset = (id + 2) * kMiB;
            record.intent_log_bytes = kLogBytes;
            superblock.members.push_back(record);
            disks.push_back(std::make_unique<SimDevice>("m" + std::to_string(id), 16 * kMiB));
        }
        attach();
    }
    // As after a crash or a new mount.
    void attach(uint32_t without = 0, SlowHook slow = {})
    {
        members.~MemberSet();
        new (&members) MemberSet;
        faults.clear();
        for (uint32_t id = 1; id <= disks.size(); ++id) {
            auto device =
                std::make_unique<FaultDevice>(std::make_unique<BorrowedDevice>(*disks[id - 1]), id, slow);
            faults.push_back(device.get());
            members.add({id}, id == without ? nullptr : std::unique_ptr<BlockDevice>(std::move(device)), {});
        }
    }
    void crash()
    {
        for (auto& disk : disks)
            disk->power_cut(prng, {});
        attach();
    }
};

// A row with a P and a Q, and memory for both partial parities.
struct Row {
    std::vector<Checksum> checksums;
    AlignedBuffer partial{2 * kBlockBytes};
    std::vector<RowIntent::Copy> copies;
    RowIntent intent;

    Row(IntentFixture& fixture, uint64_t number)
    {
        Prng& prng = fixture.prng;
        const auto count = static_cast<uint32_t>(fixture.disks.size());
        for (uint32_t column = 0; column + 2 < count; ++column)
            checksums.push_back(prng.next());
        prng.fill(partial.data(), partial.size());
        for (uint32_t parity = 0; parity < 2; ++parity)
            copies.push_back({{static_cast<uint32_t>((number + parity) % count + 1)},
                              parity,
                              partial.data() + size_t{parity} * kBlockBytes});
        intent.row = {(number + 1) * 64 * kKiB};
        intent.mapping_version = 3;
        intent.checksums = checksums;
        intent.modified[prng.below(checksums.size())] = true;
        intent.copies = copies;
    }
};

using Rows = std::vector<std::unique_ptr<Row>>;

Status append(IntentLog& log, Rows& rows, Generation generation = {6}, uint64_t epoch = kIntentEpoch)
{
    std::vector<RowIntent> intents;
    for (const auto& row : rows)
        intents.push_back(row->intent);
    const Status status = log.append(intents, generation, epoch);
    for (size_t index = 0; index < rows.size(); ++index)
        rows[index]->intent.sequence = intents[index].sequence;
    return status;
}

Rows make_rows(IntentFixture& fixture, uint64_t first, size_t count)
{
    Rows rows;
    for (size_t index = 0; index < count; ++index)
        rows.push_back(std::make_unique<Row>(fixture, first + index));
    return rows;
}

const LoggedRow* find(const IntentScan& scan, uint64_t sequence)
{
    for (const LoggedRow& row : scan.rows())
        if (row.sequence == sequence)
            return &row;
    return nullptr;
}

// All copies of the row are found as they were appended, but for those of the members in `without`.
void require_found(IntentScan& scan, const Row& row, const std::vector<uint32_t>& without = {})
{
    CAPTURE(row.intent.sequence);
    const LoggedRow* found = find(scan, row.intent.sequence);
    REQUIRE(found != nullptr);
    CHECK(found->row == row.intent.row);
    CHECK(found->mapping_version == 3);
    CHECK(found->checksums == row.checksums);
    CHECK(found->modified == row.intent.modified);
    size_t expected = 0;
    for (const RowIntent::Copy& copy : row.copies)
        expected += std::count(without.begin(), without.end(), copy.member.value) == 0 ? 1 : 0;
    CHECK(found->copies.size() == expected);
    for (const LoggedRow::Copy& copy : found->copies) {
        std::byte partial[kBlockBytes];
        REQUIRE(scan.read_partial(copy, partial).ok());
        const std::byte* wanted = row.partial.data() + size_t{copy.parity_column} * kBlockBytes;
        CHECK(std::memcmp(partial, wanted, kBlockBytes) == 0);
        CHECK(copy.member == row.copies[copy.parity_column].member);
    }
}

}  // namespace

TEST_CASE("intent log: entries are durable when append returns, and found by a scan")
{
    IntentFixture fixture;
    IntentLog log(fixture.members, fixture.superblock, 1);
    Rows first = make_rows(fixture, 0, 40);
    Rows second = make_rows(fixture, 100, 3);
    REQUIRE(append(log, first).ok());
    REQUIRE(append(log, second).ok());
    fixture.crash();
    IntentScan scan(fixture.members, fixture.superblock);
    CHECK(scan.rows().size() == 43);
    CHECK(scan.next_sequence() == 44);
    for (const Rows* rows : {&first, &second})
        for (const auto& row : *rows)
            require_found(scan, *row);
}

TEST_CASE("intent log: one durable write per member, however many rows")
{
    IntentFixture fixture;
    IntentLog log(fixture.members, fixture.superblock, 1);
    Rows rows = make_rows(fixture, 0, IntentLog::kMaxBatchRows);
    const IoStatistics before = io_statistics();
    REQUIRE(append(log, rows).ok());
    const IoStatistics after = io_statistics();
    CHECK(after.writes - before.writes == 4);
    CHECK(after.flushes == before.flushes);
}

TEST_CASE("intent log: of one row the newest entry comes first")
{
    IntentFixture fixture;
    IntentLog log(fixture.members, fixture.superblock, 1);
    for (int turn = 0; turn < 5; ++turn) {
        Rows rows = make_rows(fixture, 9, 1);
        REQUIRE(append(log, rows).ok());
    }
    IntentScan scan(fixture.members, fixture.superblock);
    REQUIRE(scan.rows().size() == 5);
    for (size_t index = 0; index < 5; ++index)
        CHECK(scan.rows()[index].sequence == 5 - index);
}

TEST_CASE("intent log: older generations, other epochs, and what is below the floor are dead")
{
    IntentFixture fixture;
    IntentLog log(fixture.members, fixture.superblock, 1);
    Rows committed = make_rows(fixture, 0, 2);
    Rows other_epoch = make_rows(fixture, 10, 2);
    Rows retired = make_rows(fixture, 20, 2);
    Rows live = make_rows(fixture, 30, 2);
    REQUIRE(append(log, committed, {5}).ok());
    REQUIRE(append(log, other_epoch, {6}, kIntentEpoch + 1).ok());
    REQUIRE(append(log, retired).ok());
    for (const Rows* rows : {&committed, &other_epoch, &retired})
        for (const auto& row : *rows)
            log.written(row->intent.sequence);
    const uint64_t covered = log.flush_covers();
    CHECK(covered == 7);
    log.retire(covered);
    REQUIRE(append(log, live).ok());
    CHECK(log.flush_covers() == 7);  // its writes are not done
    IntentScan scan(fixture.members, fixture.superblock);
    CHECK(scan.rows().size() == 2);
    for (const auto& row : live)
        require_found(scan, *row);
    CHECK(scan.next_sequence() == 9);
}

TEST_CASE("intent log: a full log refuses, and takes entries again once they are retired, for many rounds")
{
    IntentFixture fixture;
    IntentLog log(fixture.members, fixture.superblock, 1);
    uint64_t refusals = 0;
    std::map<uint64_t, std::unique_ptr<Row>> live;
    for (int round = 0; round < 400; ++round) {
        Rows rows = make_rows(fixture, fixture.prng.below(1000), fixture.prng.between(1, 20));
        Status status = append(log, rows);
        if (status.err() == Err::kNoSpace) {
            ++refusals;
            CHECK(log.usage().used_blocks > log.usage().room_blocks / 4);
            IntentScan scan(fixture.members, fixture.superblock);
            CHECK(scan.rows().size() == live.size());
            for (const auto& [sequence, row] : live)
                require_found(scan, *row);
            for (const auto& [sequence, row] : live)
                log.written(sequence);
            live.clear();
            log.retire(log.flush_covers());
            CHECK(log.usage().used_blocks == 0);
            status = append(log, rows);
        }
        REQUIRE(status.ok());
        for (auto& row : rows) {
            const uint64_t sequence = row->intent.sequence;
            live.emplace(sequence, std::move(row));
        }
    }
    CHECK(refusals > 10);
}

TEST_CASE("intent log: a crash inside append leaves whole copies or none")
{
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        IntentFixture fixture;
        fixture.prng = Prng(seed);
        IntentLog log(fixture.members, fixture.superblock, 1);
        Rows durable = make_rows(fixture, 0, 5);
        REQUIRE(append(log, durable).ok());
        // Not flushed: every member may keep any part of it.
        for (FaultDevice* fault : fixture.faults)
            fault->add_rule({.action = FaultAction::kLost, .kinds = kFaultFlushes});
        Rows cut = make_rows(fixture, 10, 20);
        REQUIRE(append(log, cut).ok());
        fixture.crash();
        IntentScan scan(fixture.members, fixture.superblock);
        for (const auto& row : durable)
            require_found(scan, *row);
        for (const auto& row : cut) {
            const LoggedRow* found = find(scan, row->intent.sequence);
            if (found == nullptr)
                continue;
            CHECK(found->checksums == row->checksums);
            for (const LoggedRow::Copy& copy : found->copies) {
                std::byte partial[kBlockBytes];
                const Status status = scan.read_partial(copy, partial);
                const std::byte* wanted = row->partial.data() + size_t{copy.parity_column} * kBlockBytes;
                CHECK((status.err() == Err::kCorrupt ||
                       (status.ok() && std::memcmp(partial, wanted, kBlockBytes) == 0)));
            }
        }
    }
}

TEST_CASE("intent log: a member that fails is taken out, and its rows are to be logged again")
{
    IntentFixture fixture;
    IntentLog log(fixture.members, fixture.superblock, 1);
    fixture.faults[1]->add_rule({.action = FaultAction::kError, .kinds = kFaultWrites});
    Rows rows = make_rows(fixture, 0, 12);
    CHECK(append(log, rows).err() == Err::kIo);
    CHECK(fixture.members.failed({2}));
    CHECK(fixture.members.counters({2})[static_cast<size_t>(MemberCounter::kWriteErrors)] == 1);
    IntentScan scan(fixture.members, fixture.superblock);
    for (const auto& row : rows)
        require_found(scan, *row, {2});
    // With both members of a row gone it has no entry at all.
    fixture.faults[2]->add_rule({.action = FaultAction::kError, .kinds = kFaultFlushes});
    Rows lost = make_rows(fixture, 1, 1);
    CHECK(append(log, lost).err() == Err::kIo);
    // Nothing is to be written under any of them.
    CHECK(log.flush_covers() == 14);
}

TEST_CASE("intent log: an unreadable or missing log costs its copies only")
{
    IntentFixture fixture;
    IntentLog log(fixture.members, fixture.superblock, 1);
    Rows rows = make_rows(fixture, 0, 12);
    REQUIRE(append(log, rows).ok());
    fixture.attach(3);
    {
        IntentScan scan(fixture.members, fixture.superblock);
        for (const auto& row : rows)
            require_found(scan, *row, {3});
    }
    fixture.attach();
    const DeviceOffset log_begin{fixture.superblock.members[0].intent_log_offset};
    fixture.faults[0]->add_rule({.action = FaultAction::kError,
                                 .kinds = kFaultReads,
                                 .begin = log_begin.value,
                                 .end = log_begin.value + kLogBytes});
    IntentScan scan(fixture.members, fixture.superblock);
    for (const auto& row : rows)
        require_found(scan, *row, {1});
    CHECK(fixture.members.counters({1})[static_cast<size_t>(MemberCounter::kReadErrors)] >= 1);
}

TEST_CASE("intent log: numbers no log counts to are not believed")
{
    IntentFixture fixture;
    IntentHeader header;
    header.volume_uuid = fixture.superblock.volume_uuid;
    header.member = {1};
    header.epoch = kIntentEpoch;
    header.generation = {6};
    const DeviceOffset log_begin{fixture.superblock.members[0].intent_log_offset};
    std::byte block[kBlockBytes];
    for (const uint64_t floor : {uint64_t{70}, UINT64_MAX - 1}) {
        header.floor = floor;
        encode_intent_block(header, {}, block);
        fixture.disks[0]->poke(log_begin.value, block);
        CHECK(IntentScan(fixture.members, fixture.superblock).next_sequence() == (floor == 70 ? 70 : 1));
    }
    // A partial parity is what users wrote, but for the epoch.
    header.epoch = kIntentEpoch + 1;
    header.floor = kMaxIntentSequence;
    encode_intent_block(header, {}, block);
    fixture.disks[0]->poke(log_begin.value, block);
    CHECK(IntentScan(fixture.members, fixture.superblock).next_sequence() == 1);
    header.epoch = kIntentEpoch;
    IntentEntry entry;
    entry.sequence = UINT64_MAX - 1;
    entry.row = {kBlockBytes};
    entry.checksums = {1, 2};
    header.floor = 0;
    encode_intent_block(header, {&entry, 1}, block);
    fixture.disks[0]->poke(log_begin.value, block);
    const IntentScan scan(fixture.members, fixture.superblock);
    CHECK(scan.next_sequence() == 1);
    CHECK(scan.rows().empty());
}

TEST_CASE("intent log: a log with more entries than an honest one has room for is left out")
{
    IntentFixture fixture;
    IntentLog log(fixture.members, fixture.superblock, 1);
    Rows rows = make_rows(fixture, 0, 3);
    REQUIRE(append(log, rows).ok());
    // Every block of one member is a descriptor full of entries of one row.
    IntentHeader header;
    header.volume_uuid = fixture.superblock.volume_uuid;
    header.member = {1};
    header.epoch = kIntentEpoch;
    header.generation = {6};
    uint64_t sequence = 1000;
    std::byte block[kBlockBytes];
    for (header.block = 0; header.block < kLogBytes / kBlockBytes; ++header.block) {
        std::vector<IntentEntry> entries;
        for (size_t bytes = intent_entry_bytes(1); bytes * (entries.size() + 1) <= kIntentRoomBytes;) {
            IntentEntry entry;
            entry.sequence = sequence++;
            entry.row = {kBlockBytes};
            entry.checksums = {1};
            entries.push_back(entry);
        }
        encode_intent_block(header, entries, block);
        fixture.disks[0]->poke(fixture.superblock.members[0].intent_log_offset + header.block * kBlockBytes,
                               block);
    }
    const IntentScan scan(fixture.members, fixture.superblock);
    CHECK(scan.next_sequence() == sequence);
    CHECK(scan.rows().size() == 3);
    for (const LoggedRow& row : scan.rows())
        for (const LoggedRow::Copy& copy : row.copies)
            CHECK(copy.member != MemberId{1});
}

TEST_CASE("intent log: when numbers end it refuses, and logs none that a scan would not believe")
{
    IntentFixture fixture;
    IntentLog log(fixture.members, fixture.superblock, kMaxIntentSequence - 1);
    Rows last = make_rows(fixture, 0, 2);
    Rows more = make_rows(fixture, 2, 1);
    REQUIRE(append(log, last).ok());
    CHECK(append(log, more) == Status(Err::kNoSpace));
    IntentScan scan(fixture.members, fixture.superblock);
    CHECK(scan.rows().size() == 2);
    for (const auto& row : last)
        require_found(scan, *row);
    REQUIRE(scan.next_sequence() == kMaxIntentSequence + 1);
    REQUIRE(scan.erase().ok());
    const IntentScan after(fixture.members, fixture.superblock);
    CHECK(after.rows().empty());
    CHECK(after.next_sequence() == kMaxIntentSequence + 1);
}

TEST_CASE("intent log: erased entries are not found again, even under the same generation")
{
    IntentFixture fixture;
    IntentLog log(fixture.members, fixture.superblock, 1);
    Rows rows = make_rows(fixture, 0, 30);
    REQUIRE(append(log, rows).ok());
    {
        IntentScan scan(fixture.members, fixture.superblock);
        CHECK(scan.rows().size() == 30);
        REQUIRE(scan.erase().ok());
    }
    fixture.crash();
    const IntentScan scan(fixture.members, fixture.superblock);
    CHECK(scan.rows().empty());
}

namespace {

using LogContent = std::vector<std::vector<std::byte>>;  // by member

LogContent content_of(const IntentFixture& fixture)
{
    LogContent content;
    for (size_t index = 0; index < fixture.disks.size(); ++index) {
        content.emplace_back(kLogBytes);
        fixture.disks[index]->peek(fixture.superblock.members[index].intent_log_offset, content.back());
    }
    return content;
}

// Of each row: is an entry found although the same member has lost a newer one that it once had?
bool older_without_newer(IntentFixture& fixture, const std::map<uint64_t, VolumeAddress>& all)
{
    const IntentScan scan(fixture.members, fixture.superblock);
    for (const auto& [sequence, address] : all) {
        if (find(scan, sequence) != nullptr)
            continue;
        for (const LoggedRow& row : scan.rows())
            if (row.row == address && row.sequence < sequence)
                return true;
    }
    return false;
}

// Descriptors without entries were flushed before anything else was written.
void make_floors_durable(const IntentFixture& fixture, LogContent& before, const LogContent& after)
{
    for (size_t member = 0; member < after.size(); ++member) {
        for (size_t at = 0; at < kLogBytes; at += kBlockBytes) {
            IntentHeader expected;
            expected.volume_uuid = fixture.superblock.volume_uuid;
            expected.member = fixture.superblock.members[member].id;
            expected.block = static_cast<uint32_t>(at / kBlockBytes);
            const std::span<const std::byte> block = std::span(after[member]).subspan(at, kBlockBytes);
            const Result<IntentBlock> decoded = decode_intent_block(block, expected);
            if (decoded.ok() && decoded->entries.empty())
                std::copy(block.begin(), block.end(),
                          before[member].begin() + static_cast<std::ptrdiff_t>(at));
        }
    }
}

// Writes that turned `before` into `after` and were not flushed: of every single block, and of all but one,
// on one member alone. Returns how many of these states were tried.
size_t try_torn(IntentFixture& fixture, const LogContent& before, const LogContent& after,
                const std::map<uint64_t, VolumeAddress>& all)
{
    size_t tried = 0;
    for (size_t member = 0; member < before.size(); ++member) {
        for (const bool single : {true, false}) {
            for (size_t block = 0; block < kLogBytes / kBlockBytes; ++block) {
                const auto part = [&](const LogContent& content, size_t number) {
                    return std::span(content[member]).subspan(number * kBlockBytes, kBlockBytes);
                };
                if (std::memcmp(part(before, block).data(), part(after, block).data(), kBlockBytes) == 0)
                    continue;
                fixture.attach();
                for (size_t other = 0; other < before.size(); ++other)
                    fixture.disks[other]->poke(fixture.superblock.members[other].intent_log_offset,
                                               other == member && !single ? after[other] : before[other]);
                fixture.disks[member]->poke(fixture.superblock.members[member].intent_log_offset +
                                                block * kBlockBytes,
                                            part(single ? after : before, block));
                for (size_t other = 0; other < before.size(); ++other)
                    if (other != member)
                        fixture.members.leave_out({static_cast<uint32_t>(other + 1)});
                CAPTURE(member);
                CAPTURE(single);
                CAPTURE(block);
                CHECK_FALSE(older_without_newer(fixture, all));
                ++tried;
            }
        }
    }
    return tried;
}

}  // namespace

// An entry that a newer one of its row has outlived would undo what was acknowledged since.
TEST_CASE("intent log: a torn append over retired entries brings none of them back without the newest")
{
    IntentFixture fixture;
    for (MemberRecord& record : fixture.superblock.members)
        record.intent_log_bytes = 40 * kBlockBytes;
    IntentLog log(fixture.members, fixture.superblock, 1);
    std::map<uint64_t, VolumeAddress> all;
    size_t tried = 0;
    for (int round = 0; round < 100; ++round) {
        LogContent before = content_of(fixture);
        Rows rows = make_rows(fixture, 9 + round % 2, round % 5 == 4 ? 24 : 1);
        if (append(log, rows).err() == Err::kNoSpace) {
            log.retire(log.flush_covers());
            REQUIRE(append(log, rows).ok());
        }
        const LogContent after = content_of(fixture);
        if (round >= 4) {
            make_floors_durable(fixture, before, after);
            tried += try_torn(fixture, before, after, all);
            for (size_t index = 0; index < after.size(); ++index)
                fixture.disks[index]->poke(fixture.superblock.members[index].intent_log_offset, after[index]);
            fixture.attach();
        }
        for (const auto& row : rows) {
            all[row->intent.sequence] = row->intent.row;
            log.written(row->intent.sequence);
        }
        if (round % 40 == 39)
            log.retire(log.flush_covers());
    }
    CHECK(tried >= 200);
}

TEST_CASE("intent log: erasing cut short leaves no entry without the newer ones of its row")
{
    IntentFixture fixture;
    IntentLog log(fixture.members, fixture.superblock, 1);
    std::map<uint64_t, VolumeAddress> all;
    for (int turn = 0; turn < 6; ++turn) {
        Rows rows = make_rows(fixture, 9 + turn % 2, 2);
        REQUIRE(append(log, rows).ok());
        for (const auto& row : rows)
            all[row->intent.sequence] = row->intent.row;
    }
    const LogContent before = content_of(fixture);
    {
        IntentScan scan(fixture.members, fixture.superblock);
        CHECK(scan.rows().size() == 12);
        REQUIRE(scan.erase().ok());
    }
    const LogContent after = content_of(fixture);
    fixture.attach();
    CHECK(IntentScan(fixture.members, fixture.superblock).next_sequence() == 13);
    CHECK(try_torn(fixture, before, after, all) >= 24);
}

namespace {

struct Writer {
    IntentLog* log;
    IntentFixture* fixture;
    uint64_t first;
    pthread_t thread{};
    uint64_t refusals = 0;
    Rows rows;
};

void* write_rows(void* argument)
{
    auto& writer = *static_cast<Writer*>(argument);
    for (size_t at = 0; at < writer.rows.size(); at += 3) {
        Rows some;
        for (size_t index = at; index < std::min(at + 3, writer.rows.size()); ++index)
            some.push_back(std::move(writer.rows[index]));
        while (append(*writer.log, some).err() == Err::kNoSpace) {
            ++writer.refusals;
            writer.log->retire(writer.log->flush_covers());
            sched_yield();
        }
        for (const auto& row : some)
            writer.log->written(row->intent.sequence);
    }
    return nullptr;
}

}  // namespace

TEST_CASE("intent log: threads append side by side")
{
    IntentFixture fixture;
    IntentLog log(fixture.members, fixture.superblock, 1);
    std::vector<Writer> writers(4);
    for (size_t index = 0; index < writers.size(); ++index)
        writers[index] = {&log, &fixture, index * 1000, {}, 0, make_rows(fixture, index * 1000, 150)};
    for (Writer& writer : writers)
        REQUIRE(pthread_create(&writer.thread, nullptr, write_rows, &writer) == 0);
    for (Writer& writer : writers)
        pthread_join(writer.thread, nullptr);
    CHECK(log.flush_covers() == 601);
    log.retire(log.flush_covers());
    CHECK(log.usage().used_blocks == 0);
}

namespace {

// Holds a request back until another append() has ended, or waits for something by all appearances.
struct OtherAppend {
    static constexpr useconds_t kLongMicroseconds = 100'000;
    IntentLog* log = nullptr;
    Rows rows;
    pthread_t thread{};
    Status status = Err::kShutdown;
    std::atomic<bool> ended{false};
    int held_requests = 0;

    static void* run(void* self)
    {
        auto& other = *static_cast<OtherAppend*>(self);
        other.status = append(*other.log, other.rows);
        other.ended = true;
        return nullptr;
    }
    static void hold(void* self, uint64_t)
    {
        auto& other = *static_cast<OtherAppend*>(self);
        if (other.held_requests++ > 0)
            return;
        CHECK(pthread_create(&other.thread, nullptr, run, &other) == 0);
        usleep(kLongMicroseconds);
    }
};

}  // namespace

TEST_CASE("intent log: an append waits for room that another one makes")
{
    IntentFixture fixture;
    OtherAppend other;
    fixture.attach(0, {OtherAppend::hold, &other});
    IntentLog log(fixture.members, fixture.superblock, 1);
    other.log = &log;
    other.rows = make_rows(fixture, 1000, 20);
    Rows rows = make_rows(fixture, 0, 20);
    while (append(log, rows).ok())
        for (const auto& row : rows)
            log.written(row->intent.sequence);
    log.retire(log.flush_covers());
    // The first write is that of a floor.
    fixture.faults[0]->add_rule(
        {.action = FaultAction::kSlow, .kinds = kFaultWrites, .limit = 1, .delay_microseconds = 1});
    CHECK(append(log, rows).ok());
    REQUIRE(other.held_requests == 1);
    pthread_join(other.thread, nullptr);
    CHECK(other.status == Status());
    IntentScan scan(fixture.members, fixture.superblock);
    for (const auto& row : rows)
        require_found(scan, *row);
    for (const auto& row : other.rows)
        require_found(scan, *row);
}

TEST_CASE("intent log: blocks are held only without entries that count, and no append takes them meanwhile")
{
    IntentFixture fixture;
    IntentLog log(fixture.members, fixture.superblock, 1);
    Rows rows = make_rows(fixture, 0, 8);
    REQUIRE(append(log, rows).ok());
    const MemberRecord& line = fixture.superblock.members[0];
    const DeviceOffset begin{line.intent_log_offset}, middle = begin + kLogBytes / 2;
    CHECK_FALSE(log.hold(line.id, begin, kBlockBytes));
    CHECK_FALSE(log.hold(line.id, begin, kLogBytes));
    CHECK_FALSE(log.hold({99}, begin, kBlockBytes));
    CHECK(log.hold(line.id, middle, kBlockBytes));
    log.release(line.id, middle);
    for (const auto& row : rows)
        log.written(row->intent.sequence);
    log.retire(log.flush_covers());
    REQUIRE(log.hold(line.id, begin, kLogBytes));
    OtherAppend other;
    other.log = &log;
    other.rows = make_rows(fixture, 10, 8);
    REQUIRE(pthread_create(&other.thread, nullptr, OtherAppend::run, &other) == 0);
    usleep(OtherAppend::kLongMicroseconds);
    CHECK_FALSE(other.ended);
    log.release(line.id, begin);
    pthread_join(other.thread, nullptr);
    CHECK(other.status == Status());
    IntentScan scan(fixture.members, fixture.superblock);
    for (const auto& row : other.rows)
        require_found(scan, *row);
}
