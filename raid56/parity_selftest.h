// SPDX-License-Identifier: MIT
// The self-test with the functions under test as arguments, so that a test can hand it broken ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cowraid {

struct ParityFunctions {
    void (*generate)(std::span<const std::byte* const> data, std::span<std::byte* const> parity,
                     size_t bytes);
    void (*recover)(std::span<std::byte* const> columns, uint32_t k, std::span<const uint32_t> erased,
                    size_t bytes);
    void (*add)(uint32_t column, const std::byte* data, std::span<std::byte* const> parity, size_t bytes);
};

// parity_selftest() is this with parity_generate(), parity_recover() and parity_add().
[[nodiscard]] bool parity_selftest_of(const ParityFunctions& functions);

}  // namespace cowraid
