// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <cstdlib>

namespace cowraid {

// Of random tests: COWRAID_SEED, or `fallback`. They print it when they fail.
inline uint64_t test_seed(uint64_t fallback = 20261120)
{
    const char* text = std::getenv("COWRAID_SEED");
    return text == nullptr ? fallback : std::strtoull(text, nullptr, 0);
}

}  // namespace cowraid
