// SPDX-License-Identifier: MIT
// How many locks a write takes, and the question for an attribute that the kernel asks before it: those of
// the whole volume are what many writers wait for.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <array>
#include <vector>

#include "base/mutex.h"
#include "tests/filesystem/volume_steps.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr auto kRankCount = static_cast<size_t>(LockRank::kEnd);
using LockCounts = std::array<uint64_t, kRankCount>;

LockCounts locks_so_far()
{
    LockCounts counts;
    for (size_t rank = 0; rank < kRankCount; ++rank)
        counts[rank] = locks_taken(static_cast<LockRank>(rank));
    return counts;
}

class WriteCost {
public:
    WriteCost() : volume_({4, 96 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3, kDefaultChunkBytes})
    {
        make_and_mount(volume_);
        const Result<Attributes> made = volume_.fs().names.make_node(kRoot, "file", S_IFREG | 0644, 0, {});
        REQUIRE(made.ok());
        inode_ = made->inode;
    }
    // Locks of each rank that one write takes.
    void write(uint64_t offset, size_t bytes)
    {
        const std::vector<std::byte> content(bytes, std::byte{5});
        const LockCounts before = locks_so_far();
        REQUIRE(volume_.fs().files.write(inode_, offset, content, {}, {}).ok());
        count_since(before);
    }
    // And a question for an attribute. The value; nothing: the file has none of that name.
    std::vector<std::byte> get_xattr(const char* name)
    {
        const LockCounts before = locks_so_far();
        Result<std::vector<std::byte>> value = volume_.fs().names.get_xattr(inode_, name);
        count_since(before);
        REQUIRE((value.ok() || value.err() == Err::kNoData));
        return value.ok() ? value.take() : std::vector<std::byte>();
    }
    void set_xattr(const char* name, const std::vector<std::byte>& value)
    {
        REQUIRE(volume_.fs().names.set_xattr(inode_, name, value, 0).ok());
    }
    [[nodiscard]] uint64_t of(LockRank rank) const { return counts_[static_cast<size_t>(rank)]; }
    [[nodiscard]] uint64_t all() const
    {
        uint64_t sum = 0;
        for (const uint64_t count : counts_)
            sum += count;
        return sum;
    }

private:
    void count_since(const LockCounts& before)
    {
        counts_ = locks_so_far();
        for (size_t rank = 0; rank < kRankCount; ++rank)
            counts_[rank] -= before[rank];
    }

    SimVolume volume_;
    InodeNumber inode_;
    LockCounts counts_{};
};

// The volume's own, of which there is one of each.
void check_volume_locks(const WriteCost& cost)
{
    CHECK(cost.of(LockRank::kLedger) == 2);
    CHECK(cost.of(LockRank::kOperationGate) == 1);  // shared
    for (const LockRank rank : {LockRank::kCommitQueue, LockRank::kSnapshot, LockRank::kSlots,
                                LockRank::kAllocator, LockRank::kLeaf})
        CHECK(cost.of(rank) == 0);
    CHECK(cost.of(LockRank::kInode) == 3);  // found, looked at, changed
    CHECK(cost.of(LockRank::kInodeTable) == 1);
    CHECK(cost.of(LockRank::kItemTable) == 1);
}

}  // namespace

#ifdef COWRAID_DEBUG
TEST_CASE("write cost: the ledger twice, the gate, and five locks of what it writes to")
{
    WriteCost cost;
    cost.write(0, kBlockBytes);  // the file's first is put into a list
    SUBCASE("4 KiB into a block that is not dirty")
    {
        cost.write(kBlockBytes, kBlockBytes);
        check_volume_locks(cost);
        CHECK(cost.all() == 8);
    }
    SUBCASE("4 KiB over dirty ones")
    {
        cost.write(0, kBlockBytes);
        check_volume_locks(cost);
        CHECK(cost.all() == 8);
    }
    SUBCASE("1 MiB")
    {
        cost.write(kMiB, kMiB);
        check_volume_locks(cost);
        CHECK(cost.all() == 8 + cost.of(LockRank::kMemory));
    }
}

TEST_CASE("write cost: an attribute that is not there is looked for once")
{
    WriteCost cost;
    const std::vector<std::byte> value(100, std::byte{7});
    cost.set_xattr("user.there", value);
    CHECK(cost.get_xattr("user.there") == value);
    const uint64_t one_look = cost.all();
    CHECK(cost.of(LockRank::kInode) == 1);
    CHECK(cost.get_xattr("security.capability").empty());
    CHECK(cost.of(LockRank::kInode) == 1);
    CHECK(cost.all() <= one_look);
}
#endif
