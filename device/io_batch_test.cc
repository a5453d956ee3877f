// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "device/file_device.h"
#include "device/late_io.h"
#include "device/open_member.h"
#include "device/ring.h"
#include "sim/sim_device.h"
#include "tests/support/device_files.h"
#include "tests/support/test_seed.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

std::unique_ptr<FileDevice> open_file(const std::string& path, const OpenOptions& options = {})
{
    std::string why;
    auto device = open_member(path, options, why);
    REQUIRE_MESSAGE(device.ok(), why);
    return device.take();
}

// Runs `body` in a thread of its own, with or without a ring.
template <typename Body> void in_thread(bool with_ring, Body body)
{
    if (with_ring)
        unsetenv("COWRAID_NO_URING");
    else
        setenv("COWRAID_NO_URING", "1", 1);
    std::thread thread([&] {
        CHECK((Ring::of_this_thread() != nullptr) == with_ring);
        body();
    });
    thread.join();
    unsetenv("COWRAID_NO_URING");
}

// One batch of random scattered writes that do not overlap, on several devices; then everything is read
// back in another shape.
struct Scatter {
    std::vector<AlignedBuffer> memory;
    std::vector<std::vector<iovec>> vectors;
    std::vector<IoRequest> requests;

    void add(Prng& prng, IoKind kind, BlockDevice* device, uint64_t offset, uint64_t bytes)
    {
        memory.push_back(random_buffer(prng, bytes));
        auto& pieces = vectors.emplace_back();
        for (uint64_t at = 0; at < bytes;) {
            uint64_t part = kBlockBytes * prng.between(1, 40);
            part = std::min(part, bytes - at);
            pieces.push_back({memory.back().data() + at, part});
            at += part;
        }
        requests.push_back({.kind = kind, .device = device, .offset = {offset}});
    }
    void run()
    {
        for (size_t index = 0; index < requests.size(); ++index)
            requests[index].vectors = vectors[index];
        run_io(requests);
        for (const IoRequest& request : requests)
            REQUIRE(request.result.ok());
    }
};

void scatter_round_trip(uint64_t seed, std::span<BlockDevice* const> devices)
{
    Prng prng(seed);
    Scatter writes;
    Scatter reads;
    for (BlockDevice* device : devices) {
        uint64_t offset = 0;
        while (offset < device->size_bytes()) {
            const uint64_t bytes = std::min(kBlockBytes * prng.between(1, prng.chance(1, 100) ? 1200 : 12),
                                            device->size_bytes() - offset);
            writes.add(prng, IoKind::kWrite, device, offset, bytes);
            reads.add(prng, IoKind::kRead, device, offset, bytes);
            offset += bytes;
        }
    }
    REQUIRE(writes.requests.size() > 256);  // more than a queue holds
    writes.run();
    reads.run();
    for (size_t index = 0; index < reads.memory.size(); ++index)
        REQUIRE(same(reads.memory[index].span(), writes.memory[index].span()));
}

// A ring reads it, and waits until somebody writes.
class PipeDevice final : public BlockDevice {
public:
    explicit PipeDevice(int read_end) : read_end_(read_end) { }
    ~PipeDevice() override
    {
        wait_for_late_io(*this);
        ring_forget_file(read_end_);
    }
    [[nodiscard]] uint64_t size_bytes() const override { return kMiB; }
    [[nodiscard]] const char* name() const override { return "pipe"; }
    void perform(IoRequest& request) override { request.result = Err::kIo; }
    [[nodiscard]] int ring_fd() const override { return read_end_; }

private:
    int read_end_;
};

// From now on io_uring_setup() of this process fails with EPERM, as in a container.
bool refuse_io_uring()
{
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{std::size(program), program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

AlignedBuffer content_of(const std::string& path)
{
    struct stat info;
    REQUIRE(stat(path.c_str(), &info) == 0);
    AlignedBuffer all(static_cast<size_t>(info.st_size));
    const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    REQUIRE(pread(fd.get(), all.data(), all.size(), 0) == static_cast<ssize_t>(all.size()));
    return all;
}

}  // namespace

TEST_CASE("scattered batches on files: the ring and the fallback store the same bytes")
{
    const uint64_t seed = test_seed();
    CAPTURE(seed);
    const TempDir dir;
    const std::string paths[] = {dir.file("ring0", 16 * kMiB), dir.file("ring1", 16 * kMiB),
                                 dir.file("plain0", 16 * kMiB), dir.file("plain1", 16 * kMiB)};
    const IoStatistics before = io_statistics();
    for (const bool with_ring : {true, false}) {
        in_thread(with_ring, [&] {
            const auto first = open_file(paths[with_ring ? 0 : 2]);
            const auto second = open_file(paths[with_ring ? 1 : 3]);
            BlockDevice* devices[] = {first.get(), second.get()};
            scatter_round_trip(seed, devices);
        });
    }
    CHECK(same(content_of(paths[0]).span(), content_of(paths[2]).span()));
    CHECK(same(content_of(paths[1]).span(), content_of(paths[3]).span()));
    CHECK_FALSE(same(content_of(paths[0]).span(), content_of(paths[1]).span()));
    const IoStatistics after = io_statistics();
    CHECK(after.write_bytes - before.write_bytes == 64 * kMiB);
    CHECK(after.read_bytes - before.read_bytes == 64 * kMiB);
    CHECK(after.batches - before.batches == 4);
    CHECK(after.ring_enters > before.ring_enters);
    CHECK(after.writes - before.writes == after.reads - before.reads);
}

TEST_CASE("a scope bounds how many requests of a batch are under way")
{
    constexpr uint32_t kRequests = 32;
    const TempDir dir;
    const auto device = open_file(dir.file("m", 1 * kMiB));
    in_thread(true, [&] {
        Prng prng(7);
        const auto enters = [&] {
            Scatter writes;
            for (uint32_t index = 0; index < kRequests; ++index)
                writes.add(prng, IoKind::kWrite, device.get(), uint64_t{index} * 8 * kBlockBytes,
                           kBlockBytes);
            const uint64_t before = io_statistics().ring_enters;
            writes.run();
            return io_statistics().ring_enters - before;
        };
        CHECK(enters() < kRequests / 2);
        {
            const IoDepthScope scope(1);
            CHECK(enters() >= kRequests);
        }
        CHECK(enters() < kRequests / 2);
    });
}

TEST_CASE("a request that waits for its turn behind one that hangs is not under way")
{
    const TempDir folder;
    const std::string path = folder.file("file", kMiB);
    in_thread(true, [&] {
        const auto file = open_file(path);
        int ends[2];
        REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
        const UniqueFd read_end(ends[0]);
        const UniqueFd write_end(ends[1]);
        PipeDevice pipe(read_end.get());
        AlignedBuffer memory(2 * kBlockBytes);
        iovec vectors[] = {{memory.data(), kBlockBytes}, {memory.data() + kBlockBytes, kBlockBytes}};
        IoRequest requests[] = {{.device = &pipe, .vectors = {&vectors[0], 1}},
                                {.device = file.get(), .vectors = {&vectors[1], 1}}};
        std::thread watcher([&] {
            usleep(300'000);
            CHECK(pipe.in_flight().oldest_ms() > 0);
            CHECK(file->in_flight().oldest_ms() == 0);
            CHECK(::write(write_end.get(), memory.data(), kBlockBytes) == ssize_t{kBlockBytes});
        });
        pipe.in_flight().set_limit_ms(100);
        file->in_flight().set_limit_ms(100);
        {
            const IoDepthScope scope(1);
            run_io(requests);
        }
        watcher.join();
        CHECK(requests[0].result.ok());
        CHECK(requests[1].result.ok());
        CHECK(pipe.in_flight().slow_count() == 1);
        CHECK(file->in_flight().slow_count() == 0);
    });
}

TEST_CASE("batches that mix simulated members and files")
{
    const TempDir dir;
    const auto file = open_file(dir.file("m", 16 * kMiB));
    SimDevice sim("sim", 16 * kMiB);
    BlockDevice* devices[] = {file.get(), &sim};
    scatter_round_trip(test_seed() + 1, devices);
}

TEST_CASE("four threads at once, each on its own part of shared devices")
{
    const uint64_t seed = test_seed();
    CAPTURE(seed);
    const TempDir dir;
    const auto file = open_file(dir.file("m", 16 * kMiB));
    SimDevice sim("sim", 16 * kMiB);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (uint64_t number = 0; number < 4; ++number) {
        threads.emplace_back([&, number] {
            Prng prng(seed + number);
            for (int round = 0; round < 60; ++round) {
                BlockDevice& device = round % 2 == 0 ? static_cast<BlockDevice&>(*file) : sim;
                const uint64_t bytes = kBlockBytes * prng.between(1, 64);
                const uint64_t offset =
                    number * 4 * kMiB + kBlockBytes * prng.below((4 * kMiB - bytes) / kBlockBytes + 1);
                AlignedBuffer out = random_buffer(prng, bytes);
                AlignedBuffer in(bytes);
                const bool ok = write(device, offset, out).ok() && flush(device).ok() &&
                                read(device, offset, in).ok() && same(in.span(), out.span());
                wrong += ok ? 0 : 1;
            }
        });
    }
    for (auto& thread : threads)
        thread.join();
    CHECK(wrong == 0);
}

TEST_CASE("a flush is not taken to cover its own batch")
{
    SimDevice sim("sim", 1 * kMiB);
    Prng prng(1);
    AlignedBuffer block = random_buffer(prng, kBlockBytes);
    const iovec vector{block.data(), block.size()};
    IoRequest batch[] = {{.kind = IoKind::kWrite, .device = &sim, .vectors = {&vector, 1}},
                         {.kind = IoKind::kFlush, .device = &sim}};
    run_io(batch);
    CHECK(batch[0].result.ok());
    CHECK(batch[1].result.ok());
    CHECK(sim.unflushed_writes() == 1);
    CHECK(flush(sim).ok());
    CHECK(sim.unflushed_writes() == 0);
}

TEST_CASE("requests beyond the end are refused, and a file that was shortened reads as an error")
{
    for (const bool with_ring : {true, false}) {
        CAPTURE(with_ring);
        in_thread(with_ring, [&] {
            const TempDir dir;
            const std::string path = dir.file("m", 1 * kMiB);
            const auto device = open_file(path);
            AlignedBuffer two = AlignedBuffer::zeroed(2 * kBlockBytes);
            CHECK(write(*device, 1 * kMiB - kBlockBytes, two).err() == Err::kIo);
            CHECK(read(*device, 1 * kMiB, two).err() == Err::kIo);
            CHECK(write(*device, UINT64_MAX - kBlockBytes + 1, two).err() == Err::kIo);
            CHECK(write(*device, 1 * kMiB - 2 * kBlockBytes, two).ok());
            struct stat info;
            REQUIRE(stat(path.c_str(), &info) == 0);
            CHECK(info.st_size == 1 * kMiB);
            // One block short: the transfer ends in the middle, which must not pass for success.
            REQUIRE(truncate(path.c_str(), 1 * kMiB - kBlockBytes) == 0);
            CHECK(read(*device, 1 * kMiB - 2 * kBlockBytes, two).err() == Err::kIo);
            AlignedBuffer one(kBlockBytes);
            CHECK(read(*device, 1 * kMiB - 2 * kBlockBytes, one).ok());
        });
    }
}

TEST_CASE("a write the filesystem refuses is an error of the member")
{
    // In a child, because the limit holds for the process.
    for (const bool with_ring : {true, false}) {
        const TempDir dir;
        const std::string path = dir.file("m", 1 * kMiB);
        const pid_t child = fork();
        if (child == 0) {
            signal(SIGXFSZ, SIG_IGN);
            if (!with_ring)
                setenv("COWRAID_NO_URING", "1", 1);
            std::string why;
            auto device = open_member(path, {}, why);
            const rlimit limit{512 * 1024, 512 * 1024};
            setrlimit(RLIMIT_FSIZE, &limit);
            AlignedBuffer block = AlignedBuffer::zeroed(2 * kBlockBytes);
            const Status below = write(**device, 0, block);
            const Status above = write(**device, 768 * kKiB, block);
            // Half of it fits: a short transfer, then an error.
            const Status across = write(**device, 512 * kKiB - kBlockBytes, block);
            _exit(below.ok() && above.err() == Err::kIo && across.err() == Err::kIo ? 0 : 1);
        }
        int status = -1;
        REQUIRE(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == 0);
    }
}

TEST_CASE("a ring does not outlive fork, and the child gets its own")
{
    const TempDir dir;
    const auto device = open_file(dir.file("m", 1 * kMiB));
    Prng prng(2);
    AlignedBuffer out = random_buffer(prng, kBlockBytes);
    REQUIRE(write(*device, 0, out).ok());
    const pid_t child = fork();
    if (child == 0) {
        AlignedBuffer in(kBlockBytes);
        bool ok = read(*device, 0, in).ok() && same(in.span(), out.span());
        ok = ok && write(*device, kBlockBytes, in).ok();
        _exit(ok ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WEXITSTATUS(status) == 0);
    AlignedBuffer in(kBlockBytes);
    REQUIRE(read(*device, kBlockBytes, in).ok());
    CHECK(same(in.span(), out.span()));
}

TEST_CASE("a kernel that refuses io_uring is served by the fallback")
{
    const TempDir dir;
    const std::string path = dir.file("m", 1 * kMiB);
    const pid_t child = fork();
    if (child == 0) {
        if (!refuse_io_uring())
            _exit(2);
        log_set_level(LogLevel::kError);
        const uint64_t before = io_statistics().ring_enters;
        std::string why;
        const auto device = open_member(path, {}, why);
        Prng prng(6);
        AlignedBuffer out = random_buffer(prng, 1 * kMiB);
        AlignedBuffer in(1 * kMiB);
        const bool ok = device.ok() && write(**device, 0, out).ok() && flush(**device).ok() &&
                        read(**device, 0, in).ok() && same(in.span(), out.span());
        _exit(ok && Ring::of_this_thread() == nullptr && io_statistics().ring_enters == before ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a closed device is released by every ring")
{
    const TempDir dir;
    const std::string path = dir.file("m", 1 * kMiB);
    auto device = open_file(path);
    AlignedBuffer block = AlignedBuffer::zeroed(kBlockBytes);
    std::atomic<int> stage{0};
    // A thread whose ring knows the file stays alive while this one closes it.
    std::thread other([&] {
        CHECK(write(*device, 0, block).ok());
        stage = 1;
        while (stage != 2)
            std::this_thread::yield();
    });
    while (stage != 1)
        std::this_thread::yield();
    device.reset();
    std::string why;
    CHECK(open_member(path, {}, why).ok());
    CHECK(why.empty());
    stage = 2;
    other.join();
}

TEST_CASE("a thread that ends releases the files that its ring knows")
{
    const TempDir dir;
    const std::string path = dir.file("m", 1 * kMiB);
    constexpr int kRounds = 20;
    for (int round = 0; round < kRounds; ++round) {
        auto device = open_file(path);
        in_thread(true, [&] {
            AlignedBuffer block = AlignedBuffer::zeroed(kBlockBytes);
            const uint64_t before = io_statistics().ring_enters;
            CHECK(write(*device, 0, block).ok());
            CHECK(io_statistics().ring_enters > before);
        });
        device.reset();
        // open_member() would wait for who holds the lock.
        const UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
        struct flock lock { };
        lock.l_type = F_WRLCK;
        CHECK(fcntl(fd.get(), F_OFD_SETLK, &lock) == 0);
    }
}

TEST_CASE("a descriptor number that is used again means the new file")
{
    const TempDir dir;
    Prng prng(3);
    int last_fd = -1;
    int reused = 0;
    for (int round = 0; round < 8; ++round) {
        auto device = open_file(dir.file("m" + std::to_string(round), 1 * kMiB));
        reused += device->ring_fd() == last_fd ? 1 : 0;
        last_fd = device->ring_fd();
        AlignedBuffer out = random_buffer(prng, kBlockBytes);
        REQUIRE(write(*device, 0, out).ok());
        device.reset();
        const AlignedBuffer all = content_of(dir.path("m" + std::to_string(round)));
        CHECK(same(all.span().first(kBlockBytes), out.span()));
    }
    CHECK(reused > 0);
}

TEST_CASE("discard releases what an image file holds")
{
    const TempDir dir;
    const std::string path = dir.file("m", 4 * kMiB);
    const auto device = open_file(path);
    Prng prng(4);
    AlignedBuffer all = random_buffer(prng, 4 * kMiB);
    REQUIRE(write(*device, 0, all).ok());
    struct stat before;
    REQUIRE(stat(path.c_str(), &before) == 0);
    IoRequest request{
        .kind = IoKind::kDiscard, .device = device.get(), .offset = {1 * kMiB}, .discard_bytes = 2 * kMiB};
    run_io({&request, 1});
    CHECK(request.result.ok());
    struct stat after;
    REQUIRE(stat(path.c_str(), &after) == 0);
    CHECK(after.st_blocks < before.st_blocks);
    CHECK(after.st_size == before.st_size);
    AlignedBuffer in(1 * kMiB);
    REQUIRE(read(*device, 0, in).ok());
    CHECK(same(in.span(), all.span().first(1 * kMiB)));
    request.offset = {3 * kMiB};
    run_io({&request, 1});
    CHECK(request.result.err() == Err::kIo);
}

TEST_CASE("loop device: latent errors under the ring, healed by a rewrite")
{
    const TempDir dir;
    const std::string path = dir.file("backing", 16 * kMiB);
    const LoopDevice loop(path);
    if (loop.name().empty()) {
        MESSAGE("no loop devices here: skipped");
        return;
    }
    for (const bool with_ring : {true, false}) {
        CAPTURE(with_ring);
        in_thread(with_ring, [&] {
            const auto device = open_file(loop.name());
            CHECK(device->is_block_device());
            CHECK(device->size_bytes() == 16 * kMiB);
            Prng prng(5);
            AlignedBuffer out = random_buffer(prng, 16 * kMiB);
            REQUIRE(write(*device, 0, out).ok());
            REQUIRE(flush(*device).ok());
            REQUIRE(truncate(path.c_str(), 8 * kMiB) == 0);
            AlignedBuffer in(64 * kKiB);
            CHECK(read(*device, 4 * kMiB, in).ok());
            CHECK(same(in.span(), out.span().subspan(4 * kMiB, in.size())));
            CHECK(read(*device, 12 * kMiB, in).err() == Err::kIo);
            // Good and bad parts in one batch keep their own results.
            AlignedBuffer good(kBlockBytes);
            const iovec vectors[] = {{in.data(), in.size()}, {good.data(), good.size()}};
            IoRequest batch[] = {
                {.kind = IoKind::kRead,
                 .device = device.get(),
                 .offset = {12 * kMiB},
                 .vectors = {&vectors[0], 1}},
                {.kind = IoKind::kRead, .device = device.get(), .offset = {0}, .vectors = {&vectors[1], 1}}};
            run_io(batch);
            CHECK(batch[0].result.err() == Err::kIo);
            CHECK(batch[1].result.ok());
            CHECK(same(good.span(), out.span().first(kBlockBytes)));
            AlignedBuffer again = random_buffer(prng, 64 * kKiB);
            CHECK(write(*device, 12 * kMiB, again).ok());
            CHECK(read(*device, 12 * kMiB, in).ok());
            CHECK(same(in.span(), again.span()));
            REQUIRE(truncate(path.c_str(), 16 * kMiB) == 0);
        });
    }
}

TEST_CASE("requests that a ring does not end in time: it is left to them, and the thread has another one")
{
    const TempDir folder;
    const std::string path = folder.file("file", 16 * kMiB);
    in_thread(true, [&] {
        const auto file = open_file(path);
        Prng prng(3);
        AlignedBuffer written = random_buffer(prng, 8 * kMiB);
        REQUIRE(write_device(*file, {0}, written.span()).ok());
        int ends[2];
        REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
        const UniqueFd read_end(ends[0]);
        const UniqueFd write_end(ends[1]);
        auto pipe = std::make_unique<PipeDevice>(read_end.get());
        const auto answer_one_request = [&] {
            REQUIRE(::write(write_end.get(), written.data(), kBlockBytes) == ssize_t{kBlockBytes});
        };
        for (int round = 0; round < 2; ++round) {
            const Ring* const ring = Ring::of_this_thread();
            AlignedBuffer memory(8 * kMiB + kBlockBytes);
            std::vector<iovec> vectors = {{memory.data(), 8 * kMiB}, {memory.data() + 8 * kMiB, kBlockBytes}};
            std::vector<IoRequest> requests(2);
            requests[0] = {.device = file.get(), .vectors = {&vectors[0], 1}};
            requests[1] = {.device = pipe.get(), .vectors = {&vectors[1], 1}};
            std::thread watcher([&] {
                usleep(300'000);
                CHECK(file->in_flight().oldest_ms() == 0);  // not as slow as what it was asked with
                CHECK(pipe->in_flight().oldest_ms() > 0);
            });
            auto late = run_io_for(requests, 600);
            watcher.join();
            REQUIRE(late != nullptr);
            CHECK_FALSE(late->is_late(0));
            CHECK(late->is_late(1));
            CHECK(requests[0].result.ok());
            CHECK(same(memory.span().first(8 * kMiB), written.span()));
            CHECK(file->in_flight().oldest_ms() == 0);
            CHECK(pipe->in_flight().oldest_ms() > 0);
            late->requests = std::move(requests);
            late->vectors = std::move(vectors);
            late->memory.push_back(std::move(memory));
            leave_behind(std::move(late));
            CHECK(Ring::of_this_thread() != ring);
            AlignedBuffer again(8 * kMiB);
            REQUIRE(read_device(*file, {0}, again.span()).ok());
            CHECK(same(again.span(), written.span()));
        }
        answer_one_request();
        const uint64_t begin = monotonic_ms();
        std::atomic<bool> closed{false};
        std::thread closer([&] {
            pipe.reset();
            closed = true;
        });
        usleep(100'000);
        CHECK_FALSE(closed);
        answer_one_request();
        closer.join();
        CHECK(monotonic_ms() - begin < 5000);
    });
}
