// SPDX-License-Identifier: MIT
// What every test of this folder begins with. Steps that fail end the test.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/sanitizer.h"
#include "format/items.h"
#include "tests/support/sim_volume.h"
#include "tests/support/test_seed.h"

namespace cowraid::test {

inline constexpr InodeNumber kRoot{kRootInode};

inline uint64_t seed()
{
    return test_seed(1);
}

// Power is cut at each event, and each case is tried; under a sanitizer, with which that takes many
// times as long, one in four.
inline constexpr int kCutStep = kSanitized ? 4 : 1;

// 0, no cut at all, comes first.
inline uint64_t next_cut(uint64_t cut)
{
    return cut == 0 ? 1 + seed() % kCutStep : cut + kCutStep;
}

// Every set of `count` of `of` members.
inline std::vector<std::vector<uint32_t>> sets_of(uint32_t count, uint32_t of)
{
    std::vector<std::vector<uint32_t>> sets;
    for (uint32_t bits = 0; bits < 1u << of; ++bits) {
        std::vector<uint32_t> set;
        for (uint32_t index = 0; index < of; ++index)
            if ((bits >> index & 1) != 0)
                set.push_back(index);
        if (set.size() == count)
            sets.push_back(set);
    }
    return sets;
}

inline MountOptions degraded_options()
{
    MountOptions options = manual_options();
    options.degraded = true;
    return options;
}

inline void mount(SimVolume& volume, const MountOptions& options, const std::vector<uint32_t>& absent = {})
{
    std::string why;
    const Status status = volume.mount(options, why, absent);
    REQUIRE_MESSAGE(status.ok(), why);
}

inline void make_and_mount(SimVolume& volume, const MountOptions& options = manual_options())
{
    std::string why;
    REQUIRE_MESSAGE(volume.make(why).ok(), why);
    mount(volume, options);
}

}  // namespace cowraid::test
