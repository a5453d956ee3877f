// SPDX-License-Identifier: MIT
// What operations write: random bytes, text, both in turn, zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"

namespace cowraid::test {

class Content {
public:
    static constexpr size_t kBytesMax = 1 << 20;

    explicit Content(uint64_t seed);

    // At most kBytesMax bytes, which stay as they are. Two calls hardly ever get the same.
    std::span<const std::byte> pick(Prng& random, size_t bytes) const;

private:
    std::vector<std::byte> random_, text_, mixed_, zeros_;
};

}  // namespace cowraid::test
