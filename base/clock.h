// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <ctime>

namespace cowraid {

// Nanoseconds of a clock that never goes back; only differences mean anything.
inline uint64_t monotonic_ns()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}
inline uint64_t monotonic_ms()
{
    return monotonic_ns() / 1000000;
}
// Milliseconds of the same clock as the last tick of the kernel left it, some ms ago: a fifth of the cost.
inline uint64_t coarse_ms()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1'000'000;
}

}  // namespace cowraid
