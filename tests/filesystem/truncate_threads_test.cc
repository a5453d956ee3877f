// SPDX-License-Identifier: MIT
// A truncate and a write of the same file that meet.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/filesystem/volume_steps.h"

using namespace cowraid;
using namespace cowraid::test;

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
    const Result<Attributes> made = fs.names.make_node(kRoot, "file", S_IFREG | 0644, 0, {});
    REQUIRE_MESSAGE(made.ok(), err_text(made.err()));
    const InodeNumber file = made->inode;
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
