// SPDX-License-Identifier: MIT
// Files of very many extents are deleted in pieces: who unmounts waits for no more than one.
#include <doctest/doctest.h>
#include <linux/falloc.h>
#include <unistd.h>

#include "fs/names/removal.h"
#include "tests/support/names_volume.h"

using namespace cowraid;

namespace {

constexpr uint64_t kExtents = 3000;

// Reserved blocks with holes between them.
void make_and_unlink(Filesystem& fs)
{
    const InodeNumber file = make_file(fs, kRoot, "file");
    for (uint64_t extent = 0; extent < kExtents; ++extent)
        REQUIRE(fs.files.allocate_range(file, 0, 2 * extent * kBlockBytes, kBlockBytes).ok());
    REQUIRE(fs.names.unlink(kRoot, "file").ok());
    fs.names.forget(file, 1);
}

}  // namespace

TEST_CASE("deleting a file ends between two pieces when it is to stop; the next mount goes on")
{
    TestVolume volume(manual_options());
    const VolumeStatistics before = volume.fs().statistics();
    make_and_unlink(volume.fs());
    CHECK(volume.fs().statistics().available_blocks + kExtents <= before.available_blocks);
    volume.fs().names.removals.stop();
    REQUIRE(volume.fs().step(true).ok());
    CHECK(volume.fs().statistics().inode_count == before.inode_count + 1);
    volume.reopen();
    CHECK(volume.fs().statistics().inode_count == before.inode_count + 1);
    REQUIRE(volume.fs().step(true).ok());
    REQUIRE(volume.fs().step(true).ok());
    CHECK(volume.fs().statistics().inode_count == before.inode_count);
    CHECK(volume.fs().statistics().available_blocks == before.available_blocks);
}

#ifdef COWRAID_DEBUG
TEST_CASE("deleting a file costs as much for each of its extents, however many there are")
{
    const auto looks_each = [](uint64_t extents) {
        TestVolume volume(manual_options());
        Filesystem& fs = volume.fs();
        const VolumeStatistics before = fs.statistics();
        const InodeNumber file = make_file(fs, kRoot, "file");
        for (uint64_t extent = 0; extent < extents; ++extent)
            REQUIRE(fs.files.allocate_range(file, 0, 2 * extent * kBlockBytes, kBlockBytes).ok());
        REQUIRE(fs.step(true).ok());
        REQUIRE(fs.names.unlink(kRoot, "file").ok());
        fs.names.forget(file, 1);
        const ItemTable& items = fs.store.timeline.open()->items;
        const uint64_t looks = items.look_count();
        REQUIRE(finish_removals(fs.names).ok());
        const uint64_t each = (items.look_count() - looks) / extents;
        REQUIRE(fs.step(true).ok());
        CHECK(fs.statistics().inode_count == before.inode_count);
        REQUIRE(fs.step(true).ok());
        CHECK(fs.statistics().available_blocks == before.available_blocks);
        return each;
    };
    const uint64_t few = looks_each(1000);
    CHECK(few > 0);
    CHECK(looks_each(16000) <= few + 2);
}
#endif

TEST_CASE("a mount that ends while a file is deleted leaves the rest to the next one")
{
    TestVolume volume(MountOptions{});
    const VolumeStatistics before = volume.fs().statistics();
    make_and_unlink(volume.fs());
    volume.reopen();
    for (int i = 0; i < 60'000 && volume.fs().statistics().inode_count != before.inode_count; ++i)
        usleep(1000);
    CHECK(volume.fs().statistics().inode_count == before.inode_count);
    REQUIRE(volume.fs().committer.sync().ok());
    CHECK(volume.fs().statistics().available_blocks == before.available_blocks);
}

TEST_CASE("what cannot be deleted now waits once, however often it was asked for")
{
    RemovalQueue queue;
    InodeNumber inode;
    for (int ask = 0; ask < 3; ++ask) {
        queue.push({7});
        REQUIRE(queue.try_pop(inode));
        queue.set_aside(inode);
    }
    REQUIRE(queue.retry().ok());
    CHECK(queue.try_pop(inode));
    CHECK(inode == InodeNumber{7});
    CHECK_FALSE(queue.try_pop(inode));
}
