// SPDX-License-Identifier: MIT
// Many writers of the same stripes: nothing lost, nothing mixed, and merged where they meet.
#include <doctest/doctest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <deque>
#include <thread>

#include "tests/support/array_fixture.h"
#include "tests/support/test_seed.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

// While one exists the plug never runs out of patience, however long the machine takes.
class StoppedClock {
public:
    StoppedClock()
    {
        clock_gettime(CLOCK_MONOTONIC, &time);
        stopped = true;
    }
    ~StoppedClock() { stopped = false; }
    StoppedClock(const StoppedClock&) = delete;
    StoppedClock& operator=(const StoppedClock&) = delete;

    static inline std::atomic<bool> stopped{false};
    static inline timespec time{};
};

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* out) noexcept
{
    if (clock != CLOCK_MONOTONIC || !StoppedClock::stopped)
        return static_cast<int>(syscall(SYS_clock_gettime, clock, out));
    *out = StoppedClock::time;
    return 0;
}

namespace {

constexpr uint64_t kStripes = 12;

// Blocks of the first stripes: every third is committed and only read, the others belong to the writers in
// turn.
struct Shares {
    std::vector<uint64_t> committed;
    std::vector<std::vector<uint64_t>> of_writer;
};

Shares share(const TestVolume& volume, size_t writers)
{
    Shares shares;
    shares.of_writer.resize(writers);
    size_t next = 0;
    for (uint64_t block = 0; block < kStripes * volume.geometry.stripe_data_blocks(); ++block) {
        if (block % 3 == 0)
            shares.committed.push_back(block);
        else
            shares.of_writer[next++ % writers].push_back(block);
    }
    return shares;
}

// A writer with some requests under way at a time.
class Writer {
public:
    Writer(TestVolume& volume, const std::vector<uint64_t>& blocks, uint64_t seed)
        : volume_(volume), blocks_(blocks), prng_(seed)
    {
    }

    bool run(int rounds)
    {
        bool good = true;
        for (int round = 0; round < rounds; ++round) {
            for (int i = 0; i < 4; ++i)
                start();
            while (!requests_.empty())
                good = finish() && good;
        }
        return good;
    }

private:
    struct Request {
        uint64_t block;
        AlignedBuffer content;
        BlockWrite write;
        WriteRequest request;
    };

    void start()
    {
        Request& one = requests_.emplace_back();
        one.block = blocks_[next_++ * 7 % blocks_.size()];
        one.content = AlignedBuffer(kBlockBytes);
        prng_.fill(one.content.data(), kBlockBytes);
        one.write = {TestVolume::kGroup + one.block * kBlockBytes, 1, one.content.data(), {}};
        one.request.writes = {&one.write, 1};
        one.request.origin = volume_.origin();
        volume_.array->submit(one.request);
    }

    bool finish()
    {
        Request& one = requests_.front();
        const bool good = volume_.array->wait(one.request).ok();
        volume_.expect_content(one.block, one.content.span());
        requests_.pop_front();
        return good;
    }

    TestVolume& volume_;
    const std::vector<uint64_t>& blocks_;
    Prng prng_;
    size_t next_ = 0;
    std::deque<Request> requests_;
};

void write_and_read_side_by_side(const Shape& shape, const PartialWriteOptions& options, uint32_t gone)
{
    constexpr size_t kWriters = 4;
    TestVolume volume(shape, test_seed());
    volume.start_partial_writes(options);
    REQUIRE(volume.write(0, kStripes, 10).ok());
    const Shares shares = share(volume, kWriters);
    if (gone < volume.member_count())
        volume.remove(gone);
    std::vector<ReadPiece> pieces;
    for (const uint64_t block : shares.committed)
        pieces.push_back(volume.piece(block, 1));
    std::atomic<bool> failed{false};
    std::atomic<bool> over{false};
    std::vector<std::thread> threads;
    for (size_t writer = 0; writer < kWriters; ++writer) {
        threads.emplace_back([&, writer] {
            if (!Writer(volume, shares.of_writer[writer], writer + 1).run(40))
                failed = true;
        });
    }
    // Blocks of the same rows, solved from them where their member is gone.
    std::thread reader([&] {
        for (size_t i = 0; !over; i = (i + 5) % pieces.size())
            if (!volume.array->read({&pieces[i], 1}).ok() || !volume.right(pieces[i]))
                failed = true;
    });
    for (std::thread& thread : threads)
        thread.join();
    over = true;
    reader.join();
    CHECK_FALSE(failed);
    CHECK(volume.read_back(0, static_cast<uint32_t>(kStripes * volume.geometry.stripe_data_blocks())));
    CHECK(volume.disk_is_right(gone < volume.member_count() ? std::vector<uint32_t>{gone}
                                                            : std::vector<uint32_t>{}));
    CHECK(volume.all_counters() == 0);
    CHECK(volume.array->partial_write_statistics().requests == kWriters * 40 * 4);
}

}  // namespace

TEST_CASE(
    "writers of the same stripes and readers of the same rows, with workers and without, whole and degraded")
{
    for (const Shape& shape : {Shape{ProfileId::kRaid5, 3, 16384}, Shape{ProfileId::kRaid6, 4, 8192}}) {
        for (const uint32_t workers : {0u, 2u}) {
            for (const bool plug : {true, false}) {
                for (const uint32_t gone : {1u, 99u}) {
                    INFO(describe(shape), " workers ", workers, " plug ", plug, " gone ", gone);
                    write_and_read_side_by_side(
                        shape, {.stripe_cache_size = 17, .plug = plug, .worker_count = workers}, gone);
                }
            }
        }
    }
}

TEST_CASE("what becomes a full stripe while it waits is written without reads and without the log")
{
    for (const uint32_t workers : {0u, 1u}) {
        TestVolume volume({ProfileId::kRaid5, 3, 16384});
        volume.start_partial_writes({.worker_count = workers});
        REQUIRE(volume.write(0, 4, 0).ok());
        volume.forget_requests();
        const uint32_t blocks = volume.geometry.stripe_data_blocks();
        AlignedBuffer content(size_t{blocks} * kBlockBytes);
        volume.prng.fill(content.data(), content.size());
        std::vector<BlockWrite> writes(blocks);
        std::deque<WriteRequest> requests;
        for (uint32_t i = 0; i < blocks; ++i) {
            writes[i] = {TestVolume::kGroup + uint64_t{i} * kBlockBytes,
                         1,
                         content.data() + size_t{i} * kBlockBytes,
                         {}};
            WriteRequest& request = requests.emplace_back();
            request.writes = {&writes[i], 1};
            request.origin = volume.origin();
        }
        const StoppedClock clock;
        for (WriteRequest& request : requests)
            volume.array->submit(request);
        for (WriteRequest& request : requests)
            CHECK(volume.array->wait(request).ok());
        volume.expect_content(0, content.span());
        CHECK(volume.requests(IoKind::kRead) == 0);
        CHECK(volume.requests(IoKind::kWrite) == 4);
        CHECK(volume.requests(IoKind::kFlush) == 0);
        CHECK(volume.disk_is_right());
    }
}

TEST_CASE("a request nobody waits for yet is carried out all the same, within the plug's patience")
{
    TestVolume volume({ProfileId::kRaid6, 3, 16384});
    volume.start_partial_writes({.worker_count = 1});
    REQUIRE(volume.write(0, 1, 0).ok());
    AlignedBuffer content(kBlockBytes);
    volume.prng.fill(content.data(), kBlockBytes);
    BlockWrite write{TestVolume::kGroup, 1, content.data(), {}};
    WriteRequest request;
    request.writes = {&write, 1};
    request.origin = volume.origin();
    volume.array->submit(request);
    while (volume.array->partial_write_statistics().rows == 0)
        std::this_thread::yield();
    CHECK(volume.array->wait(request).ok());
    volume.expect_content(0, content.span());
    CHECK(volume.disk_is_right());
}
