// SPDX-License-Identifier: MIT
#include "fuse/page_set.h"

#include <doctest/doctest.h>

#include <set>

#include "base/random.h"

namespace cowraid {

TEST_CASE("page set: a range larger than any file is taken out")
{
    PageSet set;
    set.add(0, 100000);
    set.add(uint64_t{1} << 51, (uint64_t{1} << 51) + 3);
    CHECK(set.remove(5, uint64_t{1} << 52));
    CHECK(set.ranges() == std::vector<std::pair<uint64_t, uint64_t>>{{0, 5}});
    CHECK_FALSE(set.remove(5, uint64_t{1} << 52));
    CHECK(set.remove(0, 9));
    CHECK(set.empty());
}

TEST_CASE("page set: agrees with a set of numbers across chunks")
{
    PageSet set;
    std::set<uint64_t> pages;
    Prng random(11);
    for (int step = 0; step < 20000; ++step) {
        // Around the border of two chunks.
        const uint64_t begin = 4096 - 60 + random.below(120), end = begin + 1 + random.below(20);
        if (random.chance(2, 5)) {
            set.add(begin, end);
            for (uint64_t page = begin; page < end; ++page)
                pages.insert(page);
        } else {
            bool there = false;
            for (uint64_t page = begin; page < end; ++page)
                there = pages.erase(page) > 0 || there;
            REQUIRE(set.remove(begin, end) == there);
        }
        REQUIRE(set.empty() == pages.empty());
        if (step % 8 != 0)  // what went wrong stays so for a while
            continue;
        std::set<uint64_t> known;
        for (const auto& [first, behind] : set.ranges())
            for (uint64_t page = first; page < behind; ++page)
                known.insert(page);
        REQUIRE(known == pages);
    }
}

}  // namespace cowraid
