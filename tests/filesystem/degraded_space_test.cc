// SPDX-License-Identifier: MIT
// Room while members are away: what statfs says can be written, what was promised keeps its place, and
// capacity is back when the members are.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "format/items.h"
#include "format/profile.h"
#include "tests/filesystem/degraded_space.h"
#include "tests/filesystem/volume_steps.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

uint64_t difference(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

// With all members, and nothing left of what was written.
void expect_capacity_back(SpaceWorld& world, uint64_t fresh)
{
    world.unmount();
    world.mount();
    world.require_content();
    world.remove_all();
    world.settle();
    CAPTURE(fresh);
    CHECK(difference(world.available(), fresh) <= world.group_blocks());
}

}  // namespace

TEST_CASE("degraded space: an emptied volume takes data with a member away")
{
    SpaceWorld world(5, 256 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1);
    world.start();
    const uint64_t fresh = world.available();
    CHECK(world.write(UINT64_MAX) >= fresh);
    world.remove_all();
    world.commit();
    world.unmount();
    world.mount({0});
    CHECK(world.available() >= 300 * kMiB / kBlockBytes);
    CHECK(world.write(300 * kMiB / kBlockBytes) == 300 * kMiB / kBlockBytes);
    world.commit();
    world.require_content();
    expect_capacity_back(world, fresh);
}

TEST_CASE("degraded space: groups made and emptied with a member away cost nothing when it is back")
{
    for (const bool emptied_before : {true, false})
        for (const uint32_t member_count : {4, 5}) {
            CAPTURE(member_count);
            CAPTURE(emptied_before);
            SpaceWorld world(member_count, 256 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1);
            world.start();
            const uint64_t fresh = world.available();
            world.unmount();
            world.mount({1});
            CHECK(world.write(UINT64_MAX) > 0);
            world.commit();
            if (emptied_before)
                world.remove_all();
            world.unmount();
            world.mount();
            CAPTURE(fresh);
            if (emptied_before)
                CHECK(difference(world.available(), fresh) <= world.group_blocks());
            else
                world.remove_all();
            CHECK(world.write(UINT64_MAX) + world.group_blocks() >= fresh);
            world.commit();
            world.require_content();
            world.unmount();
        }
}

TEST_CASE("degraded space: a volume that is 56 % full takes what is reported with two members away")
{
    SpaceWorld world(8, 128 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3);
    world.start();
    const uint64_t fresh = world.available();
    const uint64_t before = fresh * 56 / 100;
    REQUIRE(world.write(before) == before);
    world.unmount();
    world.mount({2, 5});
    const uint64_t reported = world.available();
    CAPTURE(fresh);
    CAPTURE(reported);
    // Four of six data columns in new groups, all of the room in those that are there.
    CHECK(reported >= fresh * 44 / 100 * 4 / 6 * 8 / 10);
    CHECK(world.write(UINT64_MAX) >= reported);
    world.commit();
    world.require_content();
    expect_capacity_back(world, fresh);
}

TEST_CASE("degraded space: two members fail under load at 5 % use and no write is refused")
{
    SpaceWorld world(8, 128 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3);
    world.start();
    REQUIRE(world.write(world.available() / 20) > 0);
    world.commit();
    uint64_t refused = world.write_synced(200, 4);
    world.fail_writes(1);
    refused += world.write_synced(300, 4);
    world.fail_writes(6);
    refused += world.write_synced(700, 4);
    CHECK(refused == 0);
    CHECK_FALSE(world.fs().info().read_only);
    world.require_content();
}

TEST_CASE("degraded space: what was promised has its place when members fail before the commit")
{
    SpaceWorld world(6, 128 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3);
    world.start();
    const Result<Attributes> reserved = world.fs().names.make_node(kRoot, "reserved", S_IFREG | 0644, 0, {});
    REQUIRE(reserved.ok());
    const uint64_t bytes = world.available() * kBlockBytes / 2;
    REQUIRE(world.fs().files.allocate_range(reserved->inode, 0, 0, bytes).ok());
    world.commit();
    world.write(UINT64_MAX);
    world.fail_writes(0);
    world.fail_writes(3);
    const Status synced = world.fs().committer.sync();
    CHECK_MESSAGE(synced.ok(), err_text(synced.err()));
    // Written to the last byte, degraded.
    std::vector<std::byte> content(kMiB, std::byte{5});
    for (uint64_t done = 0; done < bytes; done += kMiB) {
        content.resize(std::min<uint64_t>(kMiB, bytes - done));
        const Result<size_t> written = world.fs().files.write(reserved->inode, done, content, {}, {});
        REQUIRE_MESSAGE(written.ok(), err_text(written.err()));
    }
    const Status again = world.fs().committer.sync();
    CHECK_MESSAGE(again.ok(), err_text(again.err()));
    CHECK_FALSE(world.fs().info().read_only);
    world.require_content();
}

TEST_CASE("degraded space: any one of four members fails under load and the volume stays writable")
{
    constexpr struct {
        ProfileId data, metadata;
    } kProfiles[] = {{ProfileId::kRaid6, ProfileId::kRaid1c3}, {ProfileId::kRaid5, ProfileId::kRaid1}};
    for (const auto& profiles : kProfiles)
        for (uint32_t member = 0; member < 4; ++member) {
            CAPTURE(member);
            CAPTURE(static_cast<uint32_t>(profiles.data));
            SpaceWorld world(4, 128 * kMiB, profiles.data, profiles.metadata);
            world.start();
            REQUIRE(world.write(5000) == 5000);
            CHECK(world.write_synced(20, 8) == 0);
            world.fail_writes(member);
            CHECK(world.write_synced(100, 8) == 0);
            CHECK(world.write(3000) == 3000);
            const Status synced = world.fs().committer.sync();
            CHECK_MESSAGE(synced.ok(), err_text(synced.err()));
            CHECK_FALSE(world.fs().info().read_only);
            world.require_content();
            world.unmount();
            world.end_faults();
            world.mount({member});
            CHECK_FALSE(world.fs().info().read_only);
            world.require_content();
            CHECK(world.write(2000) == 2000);
            world.commit();
            world.require_content();
            world.unmount();
        }
}

TEST_CASE("degraded space: what an unlink frees is reported before the next commit, and can be written")
{
    SpaceWorld world(4, 128 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1);
    world.start();
    const uint64_t fresh = world.available();
    world.write(UINT64_MAX);
    world.commit();
    world.remove_all();
    const uint64_t reported = world.available();
    CHECK(difference(reported, fresh) <= world.group_blocks());
    CHECK(world.write(reported) == reported);
    world.commit();
    world.require_content();
    world.unmount();
}

namespace {

// Overwrites pieces of 24 files of 8 MiB until hardly a stripe holds nothing.
void scatter(SpaceWorld& world)
{
    constexpr uint64_t kFiles = 24, kFileBlocks = 2048, kBlocksMax = 50, kWrites = 6000;
    std::vector<InodeNumber> files;
    for (uint64_t i = 0; i < kFiles; ++i) {
        const Result<Attributes> made =
            world.fs().names.make_node(kRoot, "scattered" + std::to_string(i), S_IFREG | 0644, 0, {});
        REQUIRE(made.ok());
        files.push_back(made->inode);
    }
    uint64_t seed = 1;
    const auto below = [&seed](uint64_t end) {
        seed = seed * 6364136223846793005 + 1442695040888963407;
        return (seed >> 33) % end;
    };
    const std::vector<std::byte> content(kBlocksMax * kBlockBytes, std::byte{7});
    for (uint64_t i = 0; i < kWrites; ++i) {
        const InodeNumber file = files[below(kFiles)];
        const auto part = std::span(content).first((1 + below(kBlocksMax)) * kBlockBytes);
        const uint64_t at = below(kFileBlocks) * kBlockBytes;
        const Result<size_t> written = world.fs().files.write(file, at, part, {}, {});
        REQUIRE_MESSAGE(written.ok(), err_text(written.err()));
        if (i % 40 == 39)
            world.commit();
    }
    for (const InodeNumber file : files)
        world.fs().names.forget(file, 1);
}

// Makes names until so many blocks are free for nodes, or more groups for nodes are made.
void add_names(SpaceWorld& world, uint64_t free_blocks)
{
    const auto room = [&] {
        return world.fs().store.ledger.metadata_room();
    };
    const uint64_t groups = room().group_count;
    for (uint64_t names = 0; room().free_blocks > free_blocks && room().group_count == groups; ++names) {
        const std::string name = "name" + std::to_string(names) + std::string(100, 'x');
        const Result<Attributes> made = world.fs().names.make_node(kRoot, name, S_IFREG | 0644, 0, {});
        REQUIRE(made.ok());
        world.fs().names.forget(made->inode, 1);
        if (names % 100 == 99)
            world.settle();
    }
}

}  // namespace

TEST_CASE("degraded space: what random overwrites leave free is reported, and large writes take it")
{
    SpaceWorld world(5, 400 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3);
    world.start();
    world.unmount();
    world.mount({3, 4});
    scatter(world);
    add_names(world, 2100);
    const VolumeStatistics statistics = world.fs().statistics();
    CAPTURE(statistics.free_blocks);
    CHECK(world.fs().info().available_bytes == statistics.available_blocks * kBlockBytes);
    CHECK(statistics.available_blocks + world.group_blocks() >= statistics.free_blocks);
    // As large as the kernel writes.
    constexpr uint64_t kPiece = 256;
    const Result<Attributes> made = world.fs().names.make_node(kRoot, "large", S_IFREG | 0644, 0, {});
    REQUIRE(made.ok());
    const std::vector<std::byte> content(kPiece * kBlockBytes, std::byte{9});
    uint64_t taken = 0;
    while (world.fs().files.write(made->inode, taken * kBlockBytes, content, {}, {}).ok())
        taken += kPiece;
    CHECK(taken + kPiece >= statistics.available_blocks);
    const Status synced = world.fs().committer.sync();
    CHECK_MESSAGE(synced.ok(), err_text(synced.err()));
    std::vector<std::byte> got(content.size());
    for (uint64_t at = 0; at < taken; at += kPiece) {
        REQUIRE(world.fs().files.read(made->inode, at * kBlockBytes, got).ok());
        REQUIRE(got == content);
    }
    world.fs().names.forget(made->inode, 1);
    world.unmount();
}

namespace {

unsigned long long ull(uint64_t value)
{
    return value;
}

enum class Loss : uint8_t { kAbsent, kFailing };

struct Cell {
    ProfileId data, metadata;
    uint32_t member_count;
    uint32_t away_count;
    uint32_t used_percent;
    Loss loss;
};

// What the rules give at least of `blocks` free in a volume without its members away: groups on those that
// are left, or where these are too few for one, on all.
uint64_t allowed_at_least(const Cell& cell, uint64_t blocks)
{
    const Profile& profile = *find_profile(cell.data);
    const uint32_t left = cell.member_count - cell.away_count;
    if (left < profile.min_members)
        return blocks;
    if (profile.max_columns != 0)
        return blocks * left / cell.member_count;
    return blocks * (left - profile.parity) / (cell.member_count - profile.parity);
}

void run_cell(const Cell& cell)
{
    CAPTURE(std::string(find_profile(cell.data)->name));
    CAPTURE(cell.member_count);
    CAPTURE(cell.away_count);
    CAPTURE(cell.used_percent);
    CAPTURE(cell.loss == Loss::kFailing);
    SpaceWorld world(cell.member_count, 128 * kMiB, cell.data, cell.metadata);
    world.start();
    const uint64_t fresh = world.available();
    const uint64_t used = fresh * cell.used_percent / 100;
    REQUIRE(world.write(used) == used);
    world.commit();
    std::vector<uint32_t> away;
    for (uint32_t i = 0; i < cell.away_count; ++i)
        away.push_back(i == 0 ? cell.member_count - 1 : 0);
    if (cell.loss == Loss::kAbsent) {
        world.unmount();
        world.mount(away);
    } else {
        for (const uint32_t member : away)
            world.fail_writes(member);
        world.write(std::min<uint64_t>(8, world.available()));
        world.commit();
        world.commit();
    }
    REQUIRE_FALSE(world.fs().info().read_only);
    const uint64_t reported = world.available();
    const uint64_t allowed = allowed_at_least(cell, fresh - used);
    const uint64_t accepted = world.write(UINT64_MAX);
    CAPTURE(fresh);
    CAPTURE(reported);
    CAPTURE(allowed);
    CAPTURE(accepted);
    // Metadata with full redundancy takes a group now and then.
    CHECK(reported + 2 * world.group_blocks() >= allowed);
    CHECK(accepted >= reported);
    const Status synced = world.fs().committer.sync();
    CHECK_MESSAGE(synced.ok(), err_text(synced.err()));
    CHECK_FALSE(world.fs().info().read_only);
    world.require_content();
    printf("%s on %u, %u %s, %u %%: reported %llu, accepted %llu, at least %llu of %llu blocks\n",
           find_profile(cell.data)->name, cell.member_count, cell.away_count,
           cell.loss == Loss::kAbsent ? "away" : "failing", cell.used_percent, ull(reported), ull(accepted),
           ull(allowed), ull(fresh - used));
}

// Groups made while all members were there give their slots back when they hold nothing; those made of the
// members that are left are narrower, and are all that there is room for.
void check_small_synced_files(uint32_t member_count, ProfileId data, ProfileId metadata,
                              const std::vector<uint32_t>& away)
{
    constexpr uint64_t kPiece = 245;
    CAPTURE(member_count);
    SpaceWorld world(member_count, 160 * kMiB, data, metadata);
    world.start();
    const uint64_t fresh = world.available();
    world.write(UINT64_MAX);
    world.commit();
    world.unmount();
    world.mount(away);
    world.remove_all();
    const uint64_t reported = world.available();
    uint64_t accepted = 0;
    uint64_t most_lost = 0;  // of what is reported, beyond what one piece takes
    while (world.available() >= kPiece) {
        const uint64_t before = world.available();
        REQUIRE(world.write_synced(1, kPiece) == 0);
        accepted += kPiece;
        const uint64_t left = world.available() + kPiece;
        most_lost = std::max(most_lost, before - std::min(before, left));
    }
    printf("%u members, %zu away: reported %llu, accepted %llu blocks, at once %llu lost\n", member_count,
           away.size(), ull(reported), ull(accepted), ull(most_lost));
    CHECK(accepted + world.group_blocks() >= reported);
    CHECK(most_lost < world.group_blocks());
    world.require_content();
    world.remove_all();
    CHECK(difference(world.available(), reported) <= world.group_blocks());
    world.settle();
    CHECK(difference(world.available(), reported) <= world.group_blocks());
    expect_capacity_back(world, fresh);
}

}  // namespace

TEST_CASE("degraded space: an emptied volume takes what is reported as small files, each with fsync")
{
    check_small_synced_files(4, ProfileId::kRaid5, ProfileId::kRaid1, {1});
    check_small_synced_files(5, ProfileId::kRaid6, ProfileId::kRaid1c3, {1, 3});
}

TEST_CASE("degraded matrix: every profile and width, every count of members, empty, half and nearly full")
{
    constexpr struct {
        ProfileId data, metadata;
        uint32_t member_count, away_max;  // a majority stays
    } kShapes[] = {
        {ProfileId::kSingle, ProfileId::kSingle, 3, 0},   {ProfileId::kRaid1, ProfileId::kRaid1, 3, 1},
        {ProfileId::kRaid1, ProfileId::kRaid1, 4, 1},     {ProfileId::kRaid1c3, ProfileId::kRaid1c3, 3, 1},
        {ProfileId::kRaid6, ProfileId::kRaid1c3, 3, 1},   {ProfileId::kRaid1c3, ProfileId::kRaid1c3, 4, 1},
        {ProfileId::kRaid1c3, ProfileId::kRaid1c3, 5, 2}, {ProfileId::kRaid5, ProfileId::kRaid1, 3, 1},
        {ProfileId::kRaid5, ProfileId::kRaid1, 5, 1},     {ProfileId::kRaid6, ProfileId::kRaid1c3, 4, 1},
        {ProfileId::kRaid6, ProfileId::kRaid1c3, 5, 2},   {ProfileId::kRaid6, ProfileId::kRaid1c3, 8, 2},
        {ProfileId::kRaid0, ProfileId::kRaid0, 3, 0},     {ProfileId::kRaid10, ProfileId::kRaid10, 4, 1},
        {ProfileId::kRaid10, ProfileId::kRaid1, 6, 1},    {ProfileId::kRaid1c4, ProfileId::kRaid1c4, 5, 1},
    };
    // Half of them, of each count of members away every other; all with COWRAID_LONG.
    const bool all = std::getenv("COWRAID_LONG") != nullptr;
    int cells = 0;
    bool turn = true;
    for (const auto& shape : kShapes)
        for (uint32_t away = shape.away_max == 0 ? 0 : 1; away <= shape.away_max; ++away, turn = !turn)
            for (const uint32_t used : {0, 50, 95})
                for (const Loss loss : {Loss::kAbsent, Loss::kFailing}) {
                    if (away == 0 && loss == Loss::kFailing)
                        continue;
                    if (all || turn == ((used == 50) == (loss == Loss::kFailing)))
                        run_cell({shape.data, shape.metadata, shape.member_count, away, used, loss});
                    ++cells;
                }
    CHECK(cells == 108);
}
