// SPDX-License-Identifier: MIT
#include "tests/sim/repeatable.h"

#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

#include "base/random.h"

namespace {

constexpr time_t kFirstSecond = 1'700'000'000;

cowraid::Prng kernel_random(0);
time_t now_seconds = kFirstSecond;

}  // namespace

namespace cowraid::test {

void repeat_from(uint64_t seed)
{
    kernel_random = Prng(seed ^ 0x5eed5eed5eed5eedu);
    now_seconds = kFirstSecond;
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
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)
        return static_cast<int>(syscall(SYS_clock_gettime, clock, out));
    *out = {now_seconds, 12345};
    return 0;
}
}
