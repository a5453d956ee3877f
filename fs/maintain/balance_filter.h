// SPDX-License-Identifier: MIT
// Which block groups a balance is asked to empty. Looked at once, when it begins: the map keeps what was
// chosen.
#pragma once

#include <cstdint>

#include "alloc/allocator.h"
#include "raid56/array.h"

namespace cowraid {

// Both ends included.
struct FilterRange {
    uint64_t least = 0, most = UINT64_MAX;

    [[nodiscard]] bool has(uint64_t value) const { return value >= least && value <= most; }
    [[nodiscard]] bool all() const { return least == 0 && most == UINT64_MAX; }
};

struct BalanceFilter {
    FilterRange usage;  // percent of its blocks in use, rounded up
    FilterRange stripes;  // columns
    FilterRange addresses;  // any byte of it; bytes
    FilterRange places;  // on the member, any byte; bytes
    FilterRange limit;  // how many groups; fewer than the least: none
    uint32_t profiles = 0;  // bits by ProfileId; 0: any
    MemberId member;  // has a column on it; 0: any

    // Leaves none out.
    [[nodiscard]] bool all() const;
    // Whatever the limit says.
    [[nodiscard]] bool matches(const ArrayGroup& group, const GroupNumbers& numbers) const;
};

}  // namespace cowraid
