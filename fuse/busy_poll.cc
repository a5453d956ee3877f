// SPDX-License-Identifier: MIT
#include "fuse/busy_poll.h"

#include <poll.h>
#include <sched.h>

#include "base/clock.h"

namespace cowraid {

uint64_t PollWindow::begin(uint64_t now_ns)
{
    began_ns_.store(now_ns, std::memory_order_relaxed);
    return window_ns_.load(std::memory_order_relaxed);
}

void PollWindow::end(uint64_t now_ns)
{
    const uint64_t began_ns = began_ns_.load(std::memory_order_relaxed);
    if (now_ns <= began_ns + kMaxNanoseconds) {
        window_ns_.store(kMaxNanoseconds, std::memory_order_relaxed);
        return;
    }
    const uint64_t half_ns = window_ns_.load(std::memory_order_relaxed) / 2;
    window_ns_.store(half_ns < kMinNanoseconds ? 0 : half_ns, std::memory_order_relaxed);
}

void BusyPoll::before_read(int fd)
{
    const uint64_t began_ns = monotonic_ns();
    const uint64_t window_ns = window_.begin(began_ns);
    if (window_ns == 0 || polling_.exchange(true, std::memory_order_relaxed))
        return;
    pollfd request{.fd = fd, .events = POLLIN, .revents = 0};
    while (poll(&request, 1, 0) == 0 && monotonic_ns() - began_ns < window_ns)
        sched_yield();
    polling_.store(false, std::memory_order_relaxed);
}

void BusyPoll::after_read(uint64_t now_ns)
{
    window_.end(now_ns);
}

}  // namespace cowraid
