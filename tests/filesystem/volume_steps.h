// SPDX-License-Identifier: MIT
// What every test of this folder begins with. Steps that fail end the test.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "format/items.h"
#include "tests/support/sim_volume.h"

namespace cowraid::test {

inline constexpr InodeNumber kRoot{kRootInode};

// COWRAID_SEED, or 1.
inline uint64_t seed()
{
    const char* text = getenv("COWRAID_SEED");
    return text != nullptr ? strtoull(text, nullptr, 0) : 1;
}

inline void mount(SimVolume& volume, const MountOptions& options, const std::vector<uint32_t>& absent = {})
{
    std::string why;
    const Status status = volume.mount(options, why, absent);
    REQUIRE_MESSAGE(status.ok(), why);
}

inline void make_and_mount(SimVolume& volume)
{
    std::string why;
    REQUIRE_MESSAGE(volume.make(why).ok(), why);
    mount(volume, manual_options());
}

}  // namespace cowraid::test
