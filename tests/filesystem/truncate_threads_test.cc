// SPDX-License-Identifier: MIT
// A truncate and a write of the same file that meet.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "tests/filesystem/volume_steps.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

InodeNumber make_file(Filesystem& fs)
{
    const Result<Attributes> made = fs.names.make_node(kRoot, "file", S_IFREG | 0644, 0, {});
    REQUIRE_MESSAGE(made.ok(), err_text(made.err()));
    return made->inode;
}

}  // namespace

TEST_CASE("truncate: a file that grows while it is made longer keeps the block between")
{
    // Longer when the truncate looks, shorter than another's write when it acts.
    SimVolume volume({3, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * 1024});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    std::vector<std::byte> head(5000), far(100);
    prng.fill(head.data(), head.size());
    prng.fill(far.data(), far.size());
    const InodeNumber file = make_file(fs);
    const auto resize = [&](uint64_t bytes) {
        SetAttributes change;
        change.size_bytes = bytes;
        REQUIRE(fs.names.set_attributes(file, change, {}).ok());
    };
    for (int round = 0; round < 2000; ++round) {
        resize(0);
        REQUIRE(fs.files.write(file, 0, head, {}, {}).ok());
        REQUIRE(fs.step(true).ok());
        std::atomic<int> ready = 0;
        const auto meet = [&] {
            for (++ready; ready < 2;)
                std::this_thread::yield();
        };
        std::thread writer([&] {
            meet();
            REQUIRE(fs.files.write(file, 20000, far, {}, {}).ok());
        });
        meet();
        resize(6000);
        writer.join();
        std::vector<std::byte> got(head.size());
        REQUIRE(fs.files.read(file, 0, got).ok());
        REQUIRE(got == head);
    }
    REQUIRE(volume.unmount().ok());
}

TEST_CASE("seek: beside a writer that gives all blocks new places it finds no hole and no error")
{
    constexpr uint64_t kBlocks = 64;
    SimVolume volume({3, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * 1024});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    const InodeNumber file = make_file(fs);
    const std::vector<std::byte> content(kBlocks * kBlockBytes, std::byte{7});
    REQUIRE(fs.files.write(file, 0, content, {}, {}).ok());
    std::atomic<bool> over = false;
    std::thread writer([&] {
        Prng prng(seed());
        while (!over) {
            const uint64_t first = prng.below(kBlocks), count = 1 + prng.below(kBlocks - first);
            const auto part = std::span(content).first(count * kBlockBytes);
            CHECK(fs.files.write(file, first * kBlockBytes, part, {}, {}).ok());
            CHECK(fs.step(prng.below(8) == 0).ok());
        }
    });
    Prng prng(seed() + 1);
    int errors = 0;
    for (int round = 0; round < 30000; ++round) {
        const uint64_t offset = prng.below(content.size());
        const auto data = fs.files.seek(file, offset, Files::Seek::kData);
        const auto hole = fs.files.seek(file, offset, Files::Seek::kHole);
        errors += data.ok() && *data == offset && hole.ok() && *hole == content.size() ? 0 : 1;
    }
    over = true;
    writer.join();
    CHECK(errors == 0);
    REQUIRE(volume.unmount().ok());
}

TEST_CASE("read: what is cut off meanwhile is no content")
{
    SimVolume volume({3, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * 1024});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    const InodeNumber file = make_file(fs);
    const std::vector<std::byte> content(256 * 1024 + 100, std::byte{7});
    std::atomic<bool> over = false;
    std::thread writer([&] {
        SetAttributes cut;
        cut.size_bytes = 0;
        while (!over) {
            CHECK(fs.files.write(file, 0, content, {}, {}).ok());
            CHECK(fs.names.set_attributes(file, cut, {}).ok());
        }
    });
    std::vector<std::byte> got(content.size());
    uint64_t zeros = 0;
    for (int round = 0; round < 20000; ++round) {
        const Result<size_t> read = fs.files.read(file, 0, got);
        REQUIRE(read.ok());
        zeros += std::count(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(*read), std::byte{0}) != 0;
    }
    over = true;
    writer.join();
    CHECK(zeros == 0);
    REQUIRE(volume.unmount().ok());
}
