// SPDX-License-Identifier: MIT
// What a change of the volume's structure takes: what a balance is admitted by, and what --plan shows.
#pragma once

#include <cstdint>

namespace cowraid {

struct BalancePlan {
    // At the tightest moment, in bytes; both 0 where nothing of the kind moves.
    struct Room {
        uint64_t needed = 0, there = 0;
    };
    uint64_t moved_bytes = 0;  // in use in the groups that it would empty
    uint64_t group_count = 0;  // of them
    uint64_t damaged_blocks = 0;  // in them, that are known to be lost: these groups stay
    Room data, metadata;
    Room device;  // of one that takes the place of a member; both 0: there is none
    // How many more devices may be lost: now, while groups of both kinds are there, and at its end.
    uint32_t tolerance_before = 0, tolerance_meanwhile = 0, tolerance_after = 0;
    // Bytes a second, of the last change of the kind in this mount that was long enough (measured_rate());
    // 0: there was none.
    uint64_t rate = 0;
    uint64_t offered_blocks = 0;  // what writers must be content with from its begin on
    uint64_t left_blocks = 0;  // of data, when all has moved
};

// Bytes a second of work that ended. 0: it was too small to tell how fast the next will be.
inline uint64_t measured_rate(uint64_t bytes, uint64_t ms)
{
    constexpr uint64_t kBytesMin = uint64_t{64} << 20, kMsMin = 3000;
    return bytes < kBytesMin || ms < kMsMin ? 0 : bytes * 1000 / ms;
}

}  // namespace cowraid
