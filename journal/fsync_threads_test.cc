// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <pthread.h>

#include <atomic>
#include <cstring>

#include "tests/support/fsync_fixture.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

using Fixture = FsyncFixture;
using Record = FsyncBytes;

}  // namespace

namespace {

// A thread that appends numbered records, one after another, and notes how far it got.
struct Caller {
    FsyncLog* log = nullptr;
    const PowerSupply* power = nullptr;
    uint32_t number = 0;
    uint32_t count = 0;
    uint32_t acknowledged = 0;
    pthread_t thread{};

    [[nodiscard]] Record record(uint32_t index) const
    {
        Prng prng((uint64_t{number} << 32) + index);
        Record one(sizeof number + sizeof index + prng.below(index % 16 == 0 ? 12000 : 900));
        prng.fill(one.data(), one.size());
        std::memcpy(one.data(), &number, sizeof number);
        std::memcpy(one.data() + sizeof number, &index, sizeof index);
        return one;
    }
};

void* call_append(void* argument)
{
    auto& caller = *static_cast<Caller*>(argument);
    for (uint32_t index = 0; index < caller.count; ++index) {
        // What a machine without power says, to whom every member looks gone, nobody hears.
        if (!caller.log->append(caller.record(index), kOpen, kEpoch).ok() || !caller.power->on())
            break;
        ++caller.acknowledged;
    }
    return nullptr;
}

std::vector<Caller> run_callers(const Fixture& fixture, FsyncLog& log, uint32_t caller_count,
                                uint32_t record_count)
{
    std::vector<Caller> callers(caller_count);
    for (uint32_t number = 0; number < caller_count; ++number)
        callers[number] = {&log, &fixture.power, number, record_count};
    for (Caller& caller : callers)
        REQUIRE(pthread_create(&caller.thread, nullptr, call_append, &caller) == 0);
    for (Caller& caller : callers)
        pthread_join(caller.thread, nullptr);
    return callers;
}

// Every caller's records come back in its order, all that were acknowledged and at most one more.
uint64_t require_all(const std::vector<Caller>& callers, const std::vector<Record>& found)
{
    std::vector<uint32_t> next(callers.size());
    for (const Record& record : found) {
        uint32_t number = 0;
        REQUIRE(record.size() >= sizeof number);
        std::memcpy(&number, record.data(), sizeof number);
        REQUIRE(number < callers.size());
        CHECK(record == callers[number].record(next[number]++));
    }
    uint64_t acknowledged = 0;
    for (const Caller& caller : callers) {
        CHECK(next[caller.number] >= caller.acknowledged);
        CHECK(next[caller.number] <= caller.acknowledged + 1);
        acknowledged += caller.acknowledged;
    }
    return acknowledged;
}

}  // namespace

TEST_CASE("fsync log: callers that come together share batches")
{
    struct Shape {
        uint32_t member_count, tolerance;
    };
    for (const Shape shape : {Shape{3, 2}, Shape{4, 1}, Shape{8, 2}})
        for (const uint32_t caller_count : {1u, 2u, 8u}) {
            Fixture fixture(shape.member_count, 4000);
            fixture.slow_down();
            FsyncLog log = fixture.log(shape.tolerance);
            const IoStatistics before = io_statistics();
            const auto callers = run_callers(fixture, log, caller_count, 160 / caller_count);
            const IoStatistics after = io_statistics();
            const double writes = static_cast<double>(after.writes - before.writes) / 160;
            const uint64_t batches = log.counts().batches;
            MESSAGE(shape.member_count << " members, m = " << shape.tolerance << ", callers " << caller_count
                                       << ": per append " << writes << " writes; batches " << batches
                                       << " of 160");
            CHECK(after.writes - before.writes == batches * (shape.tolerance + 1));
            CHECK(after.flushes == before.flushes);
            CHECK(log.counts().records == 160);
            CHECK((caller_count == 1 ? batches == 160 : batches <= 160));
            if (caller_count == 8)
                CHECK(batches < 160);
            fixture.crash();
            FsyncScan scan = fixture.scan();
            CHECK(require_all(callers, all_records(scan)) == 160);
        }
}

TEST_CASE("fsync log: callers, failing members and a power cut at any point")
{
    uint64_t cut_short = 0, acknowledged = 0;
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        Fixture fixture(static_cast<uint32_t>(4 + seed % 3), 4000);
        fixture.prng = Prng(seed);
        const auto faulty = static_cast<uint32_t>(fixture.prng.below(fixture.disks.size()));
        fixture.faults[faulty]->add_rule({.kinds = seed % 2 == 0 ? kFaultWrites : kFaultFlushes,
                                          .skip = fixture.prng.below(40),
                                          .permille = 300});
        // Callers who share every batch write about 80 times, those who share none 400 times.
        fixture.power.arm(fixture.prng.between(1, 150));
        FsyncLog log = fixture.log(static_cast<uint32_t>(1 + seed % 2));
        const auto callers = run_callers(fixture, log, 5, 30);
        fixture.crash({faulty + 1});
        FsyncScan scan = fixture.scan();
        const uint64_t counted = require_all(callers, all_records(scan));
        cut_short += counted < 150 ? 1 : 0;
        acknowledged += counted;
    }
    MESSAGE("acknowledged " << acknowledged << ", runs cut short " << cut_short << " of 60");
    CHECK(cut_short > 5);
    CHECK(acknowledged > 200);
}

TEST_CASE("fsync log: callers while commits retire what they wrote")
{
    Fixture fixture(2, 24);
    fixture.slow_down();
    FsyncLog log = fixture.log();
    struct Shared {
        FsyncLog* log;
        std::atomic<uint64_t> open{kOpen.value};
        std::atomic<uint64_t> committed{kCommitted.value};
        std::atomic<uint64_t> logged{0}, refused{0};
        std::atomic<bool> done{false};
    } shared{&log};
    const auto body = [](void* argument) -> void* {
        auto& all = *static_cast<Shared*>(argument);
        while (!all.done) {
            const uint64_t generation = all.open.load();
            const Record record(2000, static_cast<std::byte>(generation));
            const Status status = all.log->append(record, {generation}, kEpoch);
            CHECK((status.ok() || status.err() == Err::kNoSpace || status.err() == Err::kStale));
            ++(status.ok() ? all.logged : all.refused);
            while (!status.ok() && all.committed < generation)
                usleep(50);
        }
        return nullptr;
    };
    uint64_t checked = 0;
    pthread_t threads[6];
    for (pthread_t& thread : threads)
        REQUIRE(pthread_create(&thread, nullptr, body, &shared) == 0);
    // Until enough of everything has happened, however the threads take turns.
    for (uint64_t round = 0; round < 20'000; ++round) {
        if (shared.logged >= 1500 && checked > 500 && shared.refused > 10)
            break;
        // As soon as a ring is full, or after a while, closes a generation, commits it, says so.
        const uint64_t refused = shared.refused;
        for (int turn = 0; turn < 100 && shared.refused == refused; ++turn)
            usleep(50);
        const uint64_t closed = shared.open.fetch_add(1);
        usleep(600);
        // No batch mixes generations: part of it would be dead too early or too late.
        FsyncScan scan(*fixture.members, fixture.superblock, {closed - 1});
        for (const FsyncScan::Batch& batch : scan.batches()) {
            const Result<FsyncContent> content = scan.read(batch);
            for (size_t index = 0; content.ok() && index < content->records.size(); ++index, ++checked)
                CHECK(content->records[index][0] == static_cast<std::byte>(batch.header.generation.value));
        }
        log.retire({closed});
        shared.committed = closed;
    }
    shared.done = true;
    CHECK(checked > 500);
    // Nobody is left waiting for one more commit.
    log.retire({shared.open.load()});
    shared.committed = shared.open.load();
    for (const pthread_t thread : threads)
        pthread_join(thread, nullptr);
    MESSAGE("logged " << shared.logged.load() << ", refused " << shared.refused.load());
    CHECK(shared.logged >= 1500);
    CHECK(shared.refused > 10);
    log.retire({shared.open.load()});
    CHECK(log.usage().used_blocks == 0);
}
TEST_CASE("fsync log: a stopped log lets everybody go")
{
    Fixture fixture(2, 10);
    FsyncLog log = fixture.log();
    const Record record = fixture.record(9000);
    while (log.append(record, kOpen, kEpoch).ok()) { }
    struct Waiting {
        FsyncLog* log;
        Status status;
    } waiting{&log, {}};
    pthread_t thread;
    const auto body = [](void* argument) -> void* {
        auto& one = *static_cast<Waiting*>(argument);
        one.status = one.log->append({}, {7}, kEpoch);  // waits for the commit of 6
        return nullptr;
    };
    REQUIRE(pthread_create(&thread, nullptr, body, &waiting) == 0);
    usleep(2000);
    log.stop();
    pthread_join(thread, nullptr);
    CHECK(waiting.status.err() == Err::kShutdown);
    CHECK(log.append({}, kOpen, kEpoch).err() == Err::kShutdown);
}
