// SPDX-License-Identifier: MIT
// Threads beside the commit thread: who asks for statistics while block groups come and go.
#include <pthread.h>

#include <atomic>

#include "tests/filesystem/volume_contents.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

struct StatisticsReader {
    Filesystem& fs;
    std::atomic<bool> done{false};
    std::atomic<uint64_t> reads{0}, wrong{0};

    static void* run(void* self)
    {
        auto& reader = *static_cast<StatisticsReader*>(self);
        while (!reader.done) {
            reader.wrong += reader.fs.statistics().block_bytes == kBlockBytes ? 0 : 1;
            ++reader.reads;
        }
        return nullptr;
    }
};

}  // namespace

TEST_CASE("statistics of a degraded volume beside block groups that are filled and emptied")
{
    Prng prng(seed());
    SimVolume volume({5, 96 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3, 64 * 1024});
    make_and_mount(volume);
    for (int file = 0; file < 24; ++file)
        write_file(volume.fs(), "file" + std::to_string(file), random_content(prng, 4 * kMiB));
    REQUIRE(volume.unmount().ok());
    MountOptions options;
    options.degraded = true;
    options.commit_seconds = 1;
    mount(volume, options, {4});
    Filesystem& fs = volume.fs();
    StatisticsReader reader{fs};
    pthread_t threads[2];
    for (pthread_t& thread : threads)
        REQUIRE(pthread_create(&thread, nullptr, StatisticsReader::run, &reader) == 0);
    const size_t groups_before = fs.volume->array().groups().size();
    size_t groups_least = groups_before;
    for (int round = 0; round < 3; ++round) {
        for (int file = 0; file < 24; ++file)
            REQUIRE(fs.names.unlink(kRoot, "file" + std::to_string(file)).ok());
        for (int commit = 0; commit < 6; ++commit) {
            REQUIRE(fs.committer.sync().ok());
            groups_least = std::min(groups_least, fs.volume->array().groups().size());
            usleep(300'000);
        }
        for (int file = 0; file < 24; ++file)
            write_file(fs, "file" + std::to_string(file), random_content(prng, 4 * kMiB));
    }
    reader.done = true;
    for (const pthread_t thread : threads)
        pthread_join(thread, nullptr);
    CHECK(groups_least < groups_before);
    CHECK(reader.reads > 100);
    CHECK(reader.wrong == 0);
    REQUIRE(volume.unmount().ok());
}
