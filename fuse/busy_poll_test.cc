// SPDX-License-Identifier: MIT
#include "fuse/busy_poll.h"

#include <doctest/doctest.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <thread>

#include "base/clock.h"
#include "base/unique_fd.h"

namespace cowraid {

namespace {

constexpr uint64_t kMax = PollWindow::kMaxNanoseconds;

uint64_t polled_ns(BusyPoll& poll, int fd)
{
    const uint64_t began_ns = monotonic_ns();
    poll.before_read(fd);
    return monotonic_ns() - began_ns;
}

TEST_CASE("the window to poll opens with a request that comes soon and closes with slow ones")
{
    PollWindow window;
    CHECK(window.begin(1'000'000) == 0);
    window.end(1'000'000 + kMax + 1);
    CHECK(window.begin(2'000'000) == 0);
    window.end(2'000'000 + kMax);
    uint64_t now_ns = 3'000'000;
    uint64_t last_ns = kMax;
    CHECK(window.begin(now_ns) == kMax);
    int slow = 0;
    for (uint64_t length_ns = kMax; length_ns != 0; ++slow) {
        now_ns += 2 * kMax;
        window.end(now_ns);
        length_ns = window.begin(now_ns);
        CHECK(length_ns <= last_ns / 2);
        last_ns = length_ns;
    }
    CHECK(slow == 4);  // 50, 25, 12.5 us, nothing
    window.end(now_ns + 1);
    CHECK(window.begin(now_ns + 2) == kMax);
}

TEST_CASE("for polling counts the time since any thread began to wait")
{
    PollWindow window;
    CHECK(window.begin(1000) == 0);  // sleeps for long
    CHECK(window.begin(5 * kMax) == 0);  // the next thread
    window.end(5 * kMax + 20'000);  // the first one is woken
    CHECK(window.begin(6 * kMax) == kMax);
}

TEST_CASE("polling sees what is there, and ends without it")
{
    UniqueFd event(eventfd(0, EFD_CLOEXEC));
    BusyPoll poll;
    uint64_t longest_ns = 0;
    for (int attempt = 0; attempt < 1000 && longest_ns < kMax; ++attempt) {  // who is interrupted is late
        poll.before_read(event.get());
        poll.after_read(monotonic_ns());  // at once: from now on polling is worth it
        longest_ns = polled_ns(poll, event.get());
    }
    CHECK(longest_ns >= kMax);
    std::thread writer([&event] { eventfd_write(event.get(), 1); });
    eventfd_t value = 0;
    poll.before_read(event.get());
    CHECK(eventfd_read(event.get(), &value) == 0);
    CHECK(value == 1);
    writer.join();
    eventfd_write(event.get(), 1);
    uint64_t shortest_ns = kMax;
    for (int attempt = 0; attempt < 100; ++attempt)
        shortest_ns = std::min(shortest_ns, polled_ns(poll, event.get()));
    CHECK(shortest_ns < kMax);
}

}  // namespace

}  // namespace cowraid
