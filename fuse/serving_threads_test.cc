// SPDX-License-Identifier: MIT
#include "fuse/serving_threads.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"

namespace cowraid {

namespace {

constexpr uint32_t kLeast = 4, kMost = 32;
constexpr uint64_t kPatienceMs = 20'000;

// All threads that take part are at requests.
ThreadLimit::Tick none_looks(const ThreadLimit& limit, uint64_t taken, uint64_t preempted)
{
    return {.taking_part = limit.value(),
            .looking = 0,
            .milliseconds = 1,
            .taken = taken,
            .preempted = preempted};
}

TEST_CASE("threads that serve: more take part while each is at its request for long")
{
    ThreadLimit limit(kLeast, kMost);
    for (const uint32_t value : {8, 16, 32, 32}) {
        CHECK(limit.tick(none_looks(limit, kLeast - 1, 1000)));
        CHECK(limit.value() == value);
    }
}

TEST_CASE("threads that serve: a late tick is no sign that requests are quick")
{
    ThreadLimit limit(kLeast, kMost);
    limit.tick({.taking_part = kLeast, .looking = 0, .milliseconds = 5, .taken = 19, .preempted = 19});
    CHECK(limit.value() == 8);
    limit.tick({.taking_part = kLeast, .looking = 0, .milliseconds = 5, .taken = 20, .preempted = 20});
    CHECK(limit.value() == 7);
}

TEST_CASE("threads that serve: more take part while processors are left")
{
    ThreadLimit limit(kLeast, kMost);
    CHECK(limit.tick(none_looks(limit, 80, 9)));
    CHECK(limit.value() == 8);
}

TEST_CASE("threads that serve: fewer take part, down to the least, while they wait for processors")
{
    ThreadLimit limit(kLeast, kMost);
    while (limit.value() < kMost)
        limit.tick(none_looks(limit, 0, 0));
    uint32_t before = limit.value();
    for (int ticks = 0; limit.value() > kLeast; ++ticks, before = limit.value()) {
        REQUIRE(ticks < 30);
        CHECK(limit.tick(none_looks(limit, 80, 10)));
        CHECK(limit.value() < before);
    }
    CHECK(limit.tick(none_looks(limit, 80, 10)));
    CHECK(limit.value() == kLeast);
}

// A watch of quiet ticks, with up to nine threads at requests.
uint32_t after_quiet_ticks(ThreadLimit& limit, uint64_t preempted)
{
    for (uint32_t tick = 1; tick < ThreadLimit::kQuietTicks; ++tick)
        CHECK(limit.tick({.taking_part = kMost,
                          .looking = kMost - tick % 10,
                          .milliseconds = 1,
                          .taken = 80,
                          .preempted = preempted}));
    CHECK(limit.value() == kMost);
    CHECK(!limit.tick(
        {.taking_part = kMost, .looking = kMost, .milliseconds = 1, .taken = 80, .preempted = 0}));
    return limit.value();
}

TEST_CASE("threads that serve: quiet ticks end the watch and leave what was in use at a time, and some more")
{
    ThreadLimit limit(kLeast, kMost);
    while (limit.value() < kMost)
        limit.tick(none_looks(limit, 0, 0));
    CHECK(after_quiet_ticks(limit, 9) == 9 + kLeast);
    // Of the next watch the least may be enough.
    for (uint32_t tick = 1; tick <= ThreadLimit::kQuietTicks; ++tick)
        limit.tick({.taking_part = 13, .looking = 13, .milliseconds = 1, .taken = 5, .preempted = 0});
    CHECK(limit.value() == kLeast);
}

TEST_CASE("threads that serve: quiet ticks leave only what was in use where processors are the limit")
{
    ThreadLimit limit(kLeast, kMost);
    while (limit.value() < kMost)
        limit.tick(none_looks(limit, 0, 0));
    CHECK(after_quiet_ticks(limit, 11) == 9);
}

// Threads that take one byte each from a pipe, and hold it until they may go on.
class Pool {
public:
    Pool()
    {
        int fds[2];
        REQUIRE(pipe2(fds, O_CLOEXEC) == 0);
        requests_ = UniqueFd(fds[0]);
        in_ = UniqueFd(fds[1]);
        REQUIRE(serving_.start().ok());
        for (uint32_t i = 0; i < kMost; ++i)
            threads_.emplace_back([this] { serve(); });
    }
    ~Pool()
    {
        go_on_ = true;
        in_ = UniqueFd();  // who reads meets the end
        for (std::thread& thread : threads_)
            thread.join();
        serving_.finish();
    }
    void request(int count)
    {
        const std::vector<char> bytes(static_cast<size_t>(count), 'r');
        REQUIRE(write(in_.get(), bytes.data(), bytes.size()) == count);
    }
    bool hold(uint32_t count) { return wait_for(held_, count); }
    bool look(uint32_t count) { return wait_for(at_reading_, count); }
    void go_on() { go_on_ = true; }
    [[nodiscard]] uint32_t most_at_reading() const { return most_at_reading_; }

private:
    static bool wait_for(const std::atomic<uint32_t>& value, uint32_t wanted)
    {
        const uint64_t end_ms = monotonic_ms() + kPatienceMs;
        while (value != wanted && monotonic_ms() < end_ms)
            usleep(1000);
        return value == wanted;
    }
    void serve()
    {
        char byte;
        ssize_t count = 1;
        while (count == 1) {
            serving_.before_read();
            const uint32_t now = ++at_reading_;
            for (uint32_t most = most_at_reading_; now > most;)
                if (most_at_reading_.compare_exchange_weak(most, now))
                    break;
            count = read(requests_.get(), &byte, 1);
            --at_reading_;
            serving_.after_read();
            if (count != 1)
                break;
            ++held_;
            while (!go_on_)
                usleep(1000);
            --held_;
        }
    }

    ServingThreads serving_{kLeast, kMost};
    UniqueFd requests_, in_;
    std::atomic<bool> go_on_{false};
    std::atomic<uint32_t> held_{0}, at_reading_{0}, most_at_reading_{0};
    std::vector<std::thread> threads_;
};

TEST_CASE("threads that serve: those that were not needed yet count as if they looked")
{
    ServingThreads serving(kLeast, kMost);
    REQUIRE(serving.start().ok());
    for (uint32_t started = 1; started <= kLeast; ++started) {
        // Each is at a request from now on.
        std::thread([&] {
            serving.before_read();
            serving.after_read();
        }).join();
        CHECK(serving.busy() == (started == kLeast));
    }
    serving.finish();
}

TEST_CASE("threads that serve: the least look for requests, and all serve those that wait")
{
    Pool pool;
    CHECK(pool.look(kLeast));
    pool.request(kLeast - 1);
    CHECK(pool.hold(kLeast - 1));
    CHECK(pool.most_at_reading() == kLeast);
    // One more, and nobody would look.
    pool.request(kMost - kLeast + 1);
    CHECK(pool.hold(kMost));
    pool.go_on();
    CHECK(pool.hold(0));
    pool.request(1);
    CHECK(pool.hold(0));
}

}  // namespace

}  // namespace cowraid
