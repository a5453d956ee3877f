// SPDX-License-Identifier: MIT
// Files of very many extents are deleted in pieces: who unmounts waits for no more than one.
#include <doctest/doctest.h>
#include <linux/falloc.h>
#include <unistd.h>

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
