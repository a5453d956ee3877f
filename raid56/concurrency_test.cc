// SPDX-License-Identifier: MIT
// Many threads at once; meaningful above all under the thread sanitizer.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "raid56/stripe_lock.h"
#include "tests/support/array_fixture.h"
#include "tests/support/test_seed.h"

using namespace cowraid;
using namespace cowraid::test;

TEST_CASE("a stripe has one holder at a time")
{
    StripeLocks locks;
    constexpr int kThreads = 6;
    constexpr int kStripes = 7;
    uint64_t guarded[kStripes] = {};
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&, thread] {
            Prng prng(static_cast<uint64_t>(thread) + 1);
            for (int round = 0; round < 2000; ++round) {
                const uint64_t first = prng.below(kStripes - 1);
                const StripeKey keys[] = {{{4096}, first}, {{4096}, prng.between(first + 1, kStripes - 1)}};
                const StripeLockSet lock(locks, std::span(keys, round % 2 == 0 ? 2 : 1));
                // Others get their chance in the middle: without the lock counts would be lost.
                const uint64_t first_count = guarded[keys[0].stripe];
                const uint64_t second_count = round % 2 == 0 ? guarded[keys[1].stripe] : 0;
                if (round % 4 == 0)
                    std::this_thread::yield();
                guarded[keys[0].stripe] = first_count + 1;
                if (round % 2 == 0)
                    guarded[keys[1].stripe] = second_count + 1;
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    uint64_t sum = 0;
    for (const uint64_t count : guarded)
        sum += count;
    CHECK(sum == kThreads * 3000);
    CHECK(locks.held_count() == 0);
}

TEST_CASE("readers that meet the same rot all get the right bytes; it is counted and repaired once")
{
    for (const Shape& shape : {Shape{ProfileId::kRaid6, 4, 16384}, Shape{ProfileId::kRaid1c3, 1, 16384}}) {
        for (int round = 0; round < 20; ++round) {
            TestVolume volume(shape, static_cast<uint64_t>(round) + 1);
            REQUIRE(volume.write(0, 4, 0).ok());
            uint64_t faults = 0;
            for (uint64_t stripe = 0; stripe < 4; ++stripe) {
                // The copy that is read first: another would not be met.
                const uint32_t copies = volume.geometry.copies;
                volume.rot({stripe, shape.data_columns - 1, 1},
                           static_cast<uint32_t>((copies - stripe % copies) % copies));
                ++faults;
            }
            const uint32_t blocks = 4 * volume.geometry.stripe_data_blocks();
            constexpr int kReaders = 4;
            std::vector<ReadPiece> pieces;
            for (int reader = 0; reader < kReaders; ++reader)
                pieces.push_back(volume.piece(0, blocks));
            std::vector<std::thread> threads;
            for (ReadPiece& piece : pieces)
                threads.emplace_back([&] { volume.array->read(std::span(&piece, 1)).ignore(); });
            for (std::thread& thread : threads)
                thread.join();
            for (const ReadPiece& piece : pieces) {
                CHECK(piece.result.ok());
                CHECK(volume.right(piece));
            }
            CHECK(volume.disk_is_right());
            CHECK(volume.all_counters() == 2 * faults);
            CHECK(volume.array->statistics().blocks_repaired == faults);
        }
    }
}

TEST_CASE("writers, readers with repairs, checks and group changes side by side")
{
    TestVolume volume({ProfileId::kRaid6, 4, 16384}, test_seed());
    REQUIRE(volume.write(0, 4, 0).ok());
    for (uint64_t stripe = 0; stripe < 4; ++stripe)
        for (uint32_t row = 0; row < 4; ++row)
            volume.rot({stripe, row, row});
    std::vector<RowWrite> writes;
    for (uint64_t stripe = 4; stripe < 24; ++stripe)
        writes.push_back(volume.prepare(stripe, 1, 0, 4, 10));
    std::vector<ReadPiece> pieces;
    for (uint32_t i = 0; i < 64; ++i)
        pieces.push_back(volume.piece(i, 64 - i));
    std::atomic<bool> failed{false};
    std::vector<std::thread> threads;
    threads.emplace_back([&] {
        for (RowWrite& write : writes)
            if (!volume.array->write_rows(std::span(&write, 1)).ok())
                failed = true;
    });
    for (int reader = 0; reader < 2; ++reader) {
        threads.emplace_back([&, reader] {
            for (size_t i = static_cast<size_t>(reader); i < pieces.size(); i += 2)
                if (!volume.array->read(std::span(&pieces[i], 1)).ok())
                    failed = true;
        });
    }
    threads.emplace_back([&] {
        GroupRecord other = volume.group_record;
        for (int round = 0; round < 50; ++round) {
            other.address = TestVolume::kGroup + volume.group_record.span_bytes();
            if (!volume.array->add_group(other, volume.superblock).ok() ||
                !volume.array->group_at(other.address))
                failed = true;
            volume.array->remove_groups(std::span(&other.address, 1));
            std::vector<BadBlock> found;
            if (!volume.array->check_stripes(TestVolume::kGroup, 0, 4, found).ok())
                failed = true;
        }
    });
    for (std::thread& thread : threads)
        thread.join();
    CHECK_FALSE(failed);
    for (const ReadPiece& piece : pieces)
        CHECK(volume.right(piece));
    for (const RowWrite& write : writes)
        volume.commit(write);
    CHECK(volume.disk_is_right());
    CHECK(volume.all_counters() == 2 * 16);
}

TEST_CASE("two writers that each meet another failing member: never more out of service than is tolerated")
{
    for (int round = 0; round < 50; ++round) {
        TestVolume volume({ProfileId::kRaid5, 3, 16384}, static_cast<uint64_t>(round) + 1);
        RowWrite writes[] = {volume.prepare(0, 1, 0, 4, 0), volume.prepare(8, 1, 0, 4, 0)};
        for (const uint64_t stripe : {0u, 8u}) {
            const TestVolume::Spot spot = volume.spot({stripe, stripe == 0 ? 0u : 2u, 0});
            volume.faults[spot.member]->add_rule({.action = FaultAction::kError,
                                                  .kinds = kFaultWrites,
                                                  .begin = spot.offset,
                                                  .end = spot.offset + 16384});
        }
        std::thread one([&] { volume.array->write_rows(std::span(&writes[0], 1)).ignore(); });
        std::thread two([&] { volume.array->write_rows(std::span(&writes[1], 1)).ignore(); });
        one.join();
        two.join();
        CHECK(volume.array->missing_columns(*volume.array->group_at(TestVolume::kGroup)) == 1);
        CHECK((writes[0].result.ok()) != (writes[1].result.ok()));
    }
}
