// SPDX-License-Identifier: MIT
// Makes a run depend on its seed alone: random numbers of the kernel, the time of day and the monotonic clock
// are made up. They replace the C library's functions in the program this is linked into.
#pragma once

#include <cstdint>

namespace cowraid::test {

// From now on the kernel's random source is a generator with this seed, and the clocks start anew.
void repeat_from(uint64_t seed);
// Lets a second pass on the simulated clock of the day.
void pass_time();

}  // namespace cowraid::test
