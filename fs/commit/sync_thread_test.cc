// SPDX-License-Identifier: MIT
// Many threads write and fsync at once, with commits in between: every fsync is answered, records are shared,
// and what was acknowledged is there after the daemon dies.
#include <doctest/doctest.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/random.h"
#include "tests/support/names_volume.h"

using namespace cowraid;

namespace {

constexpr int kThreads = 6;
constexpr uint64_t kBytes = 5000;

struct Writer {
    TestVolume* volume = nullptr;
    InodeNumber inode;
    uint64_t rounds = 0;
    uint64_t acknowledged = 0;  // rounds whose data is durable
    uint64_t failures = 0;
};

std::vector<std::byte> content_of(InodeNumber inode, uint64_t round)
{
    Prng prng(inode.value * 1000 + round);
    std::vector<std::byte> content(kBytes);
    prng.fill(content.data(), content.size());
    return content;
}

void* write_and_fsync(void* argument)
{
    Writer& writer = *static_cast<Writer*>(argument);
    using What = Committer::SyncWhat;
    for (uint64_t round = 0; round < writer.rounds; ++round) {
        const std::vector<std::byte> content = content_of(writer.inode, round);
        if (!writer.volume->fs().files.write(writer.inode, round * kBytes, content, {}, {}).ok() ||
            !writer.volume->fs()
                 .committer.fsync(writer.inode, round % 2 == 0 ? What::kAll : What::kData)
                 .ok())
            ++writer.failures;
        else
            writer.acknowledged = round + 1;
        if (round % 17 == 5 && !writer.volume->fs().committer.sync().ok())
            ++writer.failures;
    }
    return nullptr;
}

// Calls fsync without waiting for the answer, with a few calls under way at a time.
struct ServingThread final : Completion {
    static constexpr int kUnderWay = 4;

    void done(Status status) override
    {
        failures += status.ok() ? 0 : 1;
        --under_way;
    }

    TestVolume* volume = nullptr;
    InodeNumber inode;
    std::atomic<int> under_way{0};
    std::atomic<uint64_t> failures{0};
};

void* serve_fsyncs(void* argument)
{
    constexpr uint64_t kRecords = 4000;
    ServingThread& thread = *static_cast<ServingThread*>(argument);
    Filesystem& fs = thread.volume->fs();
    const std::atomic<uint64_t>& records = fs.committer.syncs.counts().records;
    for (uint64_t round = 0; records < kRecords; ++round) {
        while (thread.under_way >= ServingThread::kUnderWay)
            usleep(10);
        const std::byte byte{static_cast<uint8_t>(round)};
        thread.failures += fs.files.write(thread.inode, 0, {&byte, 1}, {}, {}).ok() ? 0 : 1;
        ++thread.under_way;
        fs.committer.fsync_async(thread.inode, Committer::SyncWhat::kData, &thread);
    }
    while (thread.under_way > 0)
        usleep(10);
    return nullptr;
}

}  // namespace

// Committer::syncs asserts it.
TEST_CASE("fsync: who is to lead next is not overtaken, so that no thread serves others for long")
{
    MountOptions options;
    options.commit_seconds = 300;
    TestVolume volume(options);
    ServingThread serving[kThreads];
    pthread_t threads[kThreads];
    for (int i = 0; i < kThreads; ++i) {
        serving[i].volume = &volume;
        serving[i].inode = make_file(volume.fs(), kRoot, "file" + std::to_string(i));
        REQUIRE(pthread_create(&threads[i], nullptr, serve_fsyncs, &serving[i]) == 0);
    }
    for (pthread_t thread : threads)
        pthread_join(thread, nullptr);
    for (const ServingThread& thread : serving)
        CHECK(thread.failures == 0);
}

TEST_CASE("fsync from many threads: all answered, all there after a crash")
{
    MountOptions options;
    options.commit_seconds = 1;
    TestVolume volume(options);
    Writer writers[kThreads];
    pthread_t threads[kThreads];
    for (int i = 0; i < kThreads; ++i) {
        writers[i].volume = &volume;
        writers[i].rounds = 60;
        writers[i].inode = make_file(volume.fs(), kRoot, "file" + std::to_string(i));
        REQUIRE(pthread_create(&threads[i], nullptr, write_and_fsync, &writers[i]) == 0);
    }
    for (pthread_t thread : threads)
        pthread_join(thread, nullptr);
    const VolumeInfo info = volume.fs().info();
    MESSAGE("fsync records " << info.fsync_records << ", by commit " << info.fsync_commits << ", commits "
                             << info.commits);
    CHECK(info.fsync_records > 0);
    CHECK(info.fsync_records + info.fsync_commits <= kThreads * 60);
    volume.crash();
    for (const Writer& writer : writers) {
        CHECK(writer.failures == 0);
        CHECK(writer.acknowledged == writer.rounds);
        for (uint64_t round = 0; round < writer.rounds; ++round) {
            std::vector<std::byte> got(kBytes);
            const Result<size_t> count = volume.fs().files.read(writer.inode, round * kBytes, got);
            REQUIRE(count.ok());
            CHECK(*count == kBytes);
            CHECK(got == content_of(writer.inode, round));
        }
    }
}
