// SPDX-License-Identifier: MIT
// Many threads allocate and free while another one commits, evicts and looks.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "base/mutex.h"
#include "tests/support/space_model.h"
#include "tests/support/test_seed.h"

using namespace cowraid;

namespace {

enum BlockState : uint8_t { kFree, kLive, kPinned };

struct SharedGroup {
    GroupRecord record;
    Geometry geometry;
    std::unique_ptr<std::atomic<uint8_t>[]> blocks;
};

struct Piece {
    SharedGroup* group;
    uint64_t first;
    uint64_t count;
};

// A disk for many readers. Its lock ranks below the allocator's: a load with one of those held aborts.
class SharedDisk : public SpaceSource {
public:
    Status load_windows(VolumeAddress group_address, std::vector<SpaceWindow>& out) override
    {
        MutexLock lock(lock_);
        return disk_.load_windows(group_address, out);
    }
    bool record(const std::vector<SpaceWindow>& changed, const std::vector<GroupUsage>& summaries,
                Generation generation)
    {
        MutexLock lock(lock_);
        return disk_.record(changed, summaries, generation);
    }
    bool is_used(const GroupRecord& group, uint64_t block)
    {
        MutexLock lock(lock_);
        return disk_.is_used(group, block);
    }

private:
    Mutex lock_{LockRank::kSnapshot};
    TestDisk disk_ CW_GUARDED_BY(lock_);
};

// As fs/ does it: an operation sees one open transaction, and closing it waits for all of them.
class Arena {
public:
    explicit Arena(uint64_t seed) : seed_(seed)
    {
        const struct {
            ProfileId profile;
            uint32_t data_columns, chunk_bytes, content;
        } shapes[] = {
            {ProfileId::kRaid5, 3, 64 * kKiB, kGroupData},
            {ProfileId::kRaid6, 5, 16 * kKiB, kGroupData | kGroupMetadata},
            {ProfileId::kRaid1, 1, 64 * kKiB, kGroupMetadata | kGroupSystem},
            {ProfileId::kRaid6, 2, 4 * kKiB, kAllContent},
        };
        uint64_t address = kMiB;
        for (const auto& shape : shapes) {
            SharedGroup group;
            group.record = test_group({address}, shape.profile, shape.data_columns, shape.chunk_bytes,
                                      64 * kMiB / shape.chunk_bytes / shape.data_columns, shape.content);
            group.geometry = geometry_of(group.record);
            group.blocks = std::make_unique<std::atomic<uint8_t>[]>(group.geometry.data_blocks());
            allocator_.add_group(group.record, all_free(group.record), Allocator::GroupState::kOpen);
            address += group.record.span_bytes();
            groups_.push_back(std::move(group));
        }
    }

    void run_worker(uint64_t number)
    {
        Prng random(seed_ + number);
        std::vector<Piece> mine;
        while (!stop_.load(std::memory_order_relaxed)) {
            ReadLock lock(gate_);
            if (mine.size() > 150 || (!mine.empty() && random.chance(1, 2)))
                free_one(mine, random, open_);
            else
                allocate_some(mine, random, open_);
        }
    }

    // So many rounds, and more until the workers have made so many allocations and frees beside them.
    void run_committer(uint64_t rounds, uint64_t rounds_max, uint64_t operations)
    {
        Prng random(seed_ + 100);
        while (rounds_ < rounds ||
               (rounds_ < rounds_max && (allocations < operations || frees < operations))) {
            ++rounds_;
            TransactionId committing;
            {
                WriteLock lock(gate_);
                committing = open_;
                ++open_.value;
            }
            commit(committing, random);
            allocator_.evict_idle(random.below(8) * 1000);
            if (allocator_.numbers(kGroupData).total_blocks == 0 ||
                allocator_.empty_groups(kGroupData).size() > 4)
                ++mistakes;
            const SharedGroup& group = groups_[random.below(groups_.size())];
            if (!allocator_.is_used(group.record.address).ok())
                ++mistakes;
        }
        stop_ = true;
    }

    // With all threads gone.
    void check_end()
    {
        Prng random(seed_);
        commit({rounds_ + 1}, random);
        for (const SharedGroup& group : groups_) {
            for (uint64_t block = 0; block < group.geometry.data_blocks(); ++block) {
                if (disk_.is_used(group.record, block) != (group.blocks[block] == kLive))
                    ++mistakes;
            }
        }
    }

    std::atomic<uint64_t> mistakes{0}, allocations{0}, refusals{0}, frees{0};

private:
    void allocate_some(std::vector<Piece>& mine, Prng& random, TransactionId transaction)
    {
        const auto stream = static_cast<Stream>(random.below(kStreamCount));
        const uint32_t unit = stream == Stream::kData ? 1 : 4;
        std::vector<RowRegion> regions;
        const Status status =
            allocator_.allocate(stream, unit, random.between(1, 200 / unit), transaction, regions);
        if (!status.ok()) {
            ++refusals;
            return;
        }
        ++allocations;
        for (const RowRegion& region : regions)
            note_region(region, mine);
    }

    void note_region(const RowRegion& region, std::vector<Piece>& mine)
    {
        SharedGroup& group = *std::find_if(groups_.begin(), groups_.end(), [&](const SharedGroup& candidate) {
            return candidate.record.address == region.group_address;
        });
        for (uint64_t index = 0; index < region.block_count(); ++index) {
            const uint64_t block = (region.block_address(index) - region.group_address) / kBlockBytes;
            const uint8_t before =
                index < region.used_blocks ? group.blocks[block].exchange(kLive) : group.blocks[block].load();
            if (before != kFree)
                ++mistakes;
            if (index >= region.used_blocks)
                continue;
            if (!mine.empty() && mine.back().group == &group &&
                mine.back().first + mine.back().count == block)
                ++mine.back().count;
            else
                mine.push_back({&group, block, 1});
        }
    }

    void free_one(std::vector<Piece>& mine, Prng& random, TransactionId transaction)
    {
        std::swap(mine[random.below(mine.size())], mine.back());
        const Piece piece = mine.back();
        mine.pop_back();
        for (uint64_t block = piece.first; block < piece.first + piece.count; ++block)
            piece.group->blocks[block] = kPinned;
        {
            MutexLock lock(freed_lock_);
            freed_.push_back({transaction, piece});
        }
        const VolumeAddress address = piece.group->record.address + piece.first * kBlockBytes;
        if (!allocator_.free_blocks(address, piece.count, transaction).ok())
            ++mistakes;
        ++frees;
    }

    void commit(TransactionId transaction, Prng& random)
    {
        const Generation generation = {transaction.value};
        for (uint64_t loop = random.below(4) + 1; loop > 0; --loop) {
            if (loop > 1)
                allocate_some(nodes_, random, transaction);
            std::vector<SpaceWindow> windows;
            std::vector<GroupUsage> usages;
            if (!allocator_.collect(transaction, windows, usages).ok() ||
                !disk_.record(windows, usages, generation))
                ++mistakes;
        }
        std::vector<Piece> released;
        {
            MutexLock lock(freed_lock_);
            std::erase_if(freed_, [&](const std::pair<TransactionId, Piece>& entry) {
                if (entry.first > transaction)
                    return false;
                released.push_back(entry.second);
                return true;
            });
        }
        for (const Piece& piece : released) {
            for (uint64_t block = piece.first; block < piece.first + piece.count; ++block)
                piece.group->blocks[block] = kFree;
        }
        allocator_.release(transaction, generation);
    }

    const uint64_t seed_;
    uint64_t rounds_ = 0;  // the committer's own
    SharedDisk disk_;
    Allocator allocator_{disk_};
    std::vector<SharedGroup> groups_;
    std::vector<Piece> nodes_;  // the committer's own
    RwLock gate_{LockRank::kOperationGate};
    TransactionId open_ CW_GUARDED_BY(gate_) = {1};
    Mutex freed_lock_{LockRank::kLedger};
    std::vector<std::pair<TransactionId, Piece>> freed_ CW_GUARDED_BY(freed_lock_);
    std::atomic<bool> stop_{false};
};

}  // namespace

TEST_CASE("threads allocate, free and commit at the same time")
{
    constexpr uint64_t kRounds = 200, kRoundsMax = 20'000, kOperations = 2000;
    const uint64_t seed = test_seed();
    CAPTURE(seed);
    Arena arena(seed);
    std::vector<std::thread> threads;
    for (uint64_t number = 0; number < 4; ++number)
        threads.emplace_back([&arena, number] { arena.run_worker(number); });
    threads.emplace_back([&arena] { arena.run_committer(kRounds, kRoundsMax, kOperations); });
    for (std::thread& thread : threads)
        thread.join();
    arena.check_end();
    MESSAGE("allocations ", arena.allocations.load(), ", refused ", arena.refusals.load(), ", frees ",
            arena.frees.load());
    CHECK(arena.mistakes == 0);
    CHECK(arena.allocations > 1000);
    CHECK(arena.frees > 1000);
}

TEST_CASE("two allocations that fit one after the other never fail each other")
{
    // Each needs more than half; with the rows of the first given back, the second must fit.
    TestDisk disk;
    Allocator allocator(disk);
    for (uint64_t index = 0; index < 64; ++index) {
        const GroupRecord group =
            test_group({kMiB + index * 64 * kMiB}, ProfileId::kRaid5, 3, 64 * kKiB, 20, kGroupData);
        allocator.add_group(group, all_free(group), Allocator::GroupState::kOpen);
    }
    constexpr uint64_t kRoom = 64 * 20 * 48;
    std::atomic<uint64_t> winners{0}, losers{0};
    for (uint64_t round = 1; round <= 100; ++round) {
        std::atomic<uint64_t> won{0};
        const auto work = [&] {
            std::vector<RowRegion> regions;
            if (allocator.allocate(Stream::kData, 1, kRoom / 5 * 3, {round}, regions).ok())
                ++won;
            else
                ++losers;
            for (const RowRegion& region : regions)
                CHECK(allocator.free_blocks(region.block_address(0), region.used_blocks, {round}).ok());
        };
        std::thread other(work);
        work();
        other.join();
        CHECK(won == 1);
        winners += won;
        std::vector<SpaceWindow> windows;
        std::vector<GroupUsage> usages;
        REQUIRE(allocator.collect({round}, windows, usages).ok());
        allocator.release({round}, {round});
    }
    CHECK(winners == 100);
    CHECK(losers == 100);
}
