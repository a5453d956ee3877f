// SPDX-License-Identifier: MIT
#include "tests/sim/repeatable.h"

#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

#include "base/random.h"

namespace {

constexpr time_t kFirstSecond = 1'700'000'000;
// What a look at the monotonic clock costs, and the pauses that some find behind them: longer than a turn of
// background work, so that turns end at places that the seed chooses.
constexpr uint64_t kLookNs = 20'000, kPauseNs = 300'000'000, kLooksPerPause = 200;

cowraid::Prng kernel_random(0);
cowraid::Prng pauses(0);
time_t now_seconds = kFirstSecond;
uint64_t monotonic = 0;

timespec look_at_monotonic_clock()
{
    monotonic += pauses.chance(1, kLooksPerPause) ? kPauseNs : kLookNs;
    return {static_cast<time_t>(monotonic / 1'000'000'000), static_cast<long>(monotonic % 1'000'000'000)};
}

}  // namespace

namespace cowraid::test {

void repeat_from(uint64_t seed)
{
    kernel_random = Prng(seed ^ 0x5eed5eed5eed5eedu);
    pauses = Prng(seed ^ 0x7157157157157157u);
    now_seconds = kFirstSecond;
    monotonic = 0;
}

void pass_time()
{
    ++now_seconds;
}

}  // namespace cowraid::test

extern "C" {

// Simulated runs have one thread.
ssize_t getrandom(void* buffer, size_t bytes, unsigned)
{
    kernel_random.fill(buffer, bytes);
    return static_cast<ssize_t>(bytes);
}

int clock_gettime(clockid_t clock, timespec* out) noexcept
{
    if (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE)
        *out = look_at_monotonic_clock();
    else if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
        *out = {now_seconds, 12345};
    else
        return static_cast<int>(syscall(SYS_clock_gettime, clock, out));
    return 0;
}
}
