// SPDX-License-Identifier: MIT
// Simulated time for whole threads. While a VirtualTime exists the threads that its own thread begins, and
// those that they begin, run one at a time, in an order that depends on nothing but what they do. The clock
// stands still while one of them can go on; when all sleep or wait it jumps to the first sleeper. What they
// compute takes no time, and random numbers of the system are the same each time.
//
// Programs are linked with the arguments of `virtual_time` (sim/meson.build): calls of the C library that
// wait, or ask for the time, come here. Without a VirtualTime they are passed on.
#pragma once

#include <cstdint>

namespace cowraid {

class VirtualTime {
public:
    // One at a time. Its thread is the first of the simulated ones.
    VirtualTime();
    // The others have been joined.
    ~VirtualTime();
    VirtualTime(const VirtualTime&) = delete;
    VirtualTime& operator=(const VirtualTime&) = delete;
};

}  // namespace cowraid
