// SPDX-License-Identifier: MIT
// What changes of names and attributes take in memory until their commit is bounded.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fs/txn/no_wait.h"
#include "tests/filesystem/check_content.h"
#include "tests/filesystem/volume_steps.h"
#include "tests/support/bytes.h"

using namespace cowraid;
using namespace cowraid::test;

TEST_CASE("memory of items: who changes more than has room in memory waits for a commit")
{
    constexpr uint64_t kDirtyMax = 16 * kMiB;
    constexpr size_t kValueBytes = 60000, kValueCount = 300;
    SimVolume volume({4, kGiB, ProfileId::kRaid5, ProfileId::kRaid1, kDefaultChunkBytes});
    MountOptions options;  // with threads
    options.dirty_bytes_max = kDirtyMax;
    options.commit_seconds = 300;
    make_and_mount(volume, options);
    Filesystem& fs = volume.fs();
    const Result<Attributes> made = fs.names.make_node(kRoot, "file", S_IFREG | 0644, 0, {});
    REQUIRE(made.ok());
    uint64_t most = 0;
    std::vector<std::byte> value(kValueBytes);
    const auto name_of = [](size_t number) {
        return "user." + std::to_string(number);
    };
    for (size_t number = 0; number < kValueCount; ++number) {
        Prng(number).fill(value.data(), value.size());
        REQUIRE(fs.names.set_xattr(made->inode, name_of(number), value, 0).ok());
        most = std::max(most, fs.store.timeline.open()->items.memory_bytes());
    }
    CHECK(most > kDirtyMax / 32);
    CHECK(most < kDirtyMax / 8 + 2 * kValueBytes);
    REQUIRE(volume.unmount().ok());
    mount(volume, options);
    for (size_t number = 0; number < kValueCount; ++number) {
        Prng(number).fill(value.data(), value.size());
        const Result<std::vector<std::byte>> got = volume.fs().names.get_xattr(made->inode, name_of(number));
        REQUIRE(got.ok());
        REQUIRE(same(*got, value));
    }
    REQUIRE(volume.unmount().ok());
    REQUIRE_CLEAN(Image::copy_of(volume).check());
}

TEST_CASE("memory of items: a truncation that waited for a commit takes the file's capability with it")
{
    SimVolume volume({4, kGiB, ProfileId::kRaid5, ProfileId::kRaid1, kDefaultChunkBytes});
    MountOptions options = manual_options();
    options.dirty_bytes_max = 4 * kMiB;
    make_and_mount(volume, options);
    Filesystem& fs = volume.fs();
    const Result<Attributes> file = fs.names.make_node(kRoot, "file", S_IFREG | 0644, 0, {});
    REQUIRE(file.ok());
    const std::vector<std::byte> value(50000, std::byte{1});
    REQUIRE(fs.names.set_xattr(file->inode, "security.capability", value, 0).ok());
    for (int number = 0; fs.store.timeline.memory() != Timeline::Memory::kTooMuch; ++number)
        REQUIRE(fs.names.set_xattr(file->inode, "user." + std::to_string(number), value, 0).ok());
    SetAttributes change;
    change.size_bytes = 100;
    auto begun = fs.names.begin_set_attributes(file->inode, change, {});
    REQUIRE(begun.ok());
    {
        const NoWait scope;
        REQUIRE((*begun)->step().err() == Err::kWouldWait);
    }
    REQUIRE(finish_change(**begun).ok());
    begun->reset();
    CHECK(fs.names.get_xattr(file->inode, "security.capability").err() == Err::kNoData);
    CHECK(fs.names.get_attributes(file->inode)->size_bytes == 100);
    REQUIRE(volume.unmount().ok());
}
