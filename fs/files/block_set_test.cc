// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <set>

#include "base/random.h"
#include "fs/files/block_set.h"

using namespace cowraid;

TEST_CASE("block set: the same blocks as a plain set, in ranges that do not touch")
{
    Prng prng(3);
    for (int round = 0; round < 200; ++round) {
        BlockSet set;
        std::set<uint64_t> model;
        for (uint64_t step = prng.between(1, 40); step > 0; --step) {
            const uint64_t first = prng.below(100);
            const uint64_t count = prng.below(12);
            set.add(first, count);
            for (uint64_t block = first; block < first + count; ++block)
                model.insert(block);
        }
        std::set<uint64_t> got;
        uint64_t last_end = 0;
        bool any = false;
        for (const auto& [first, end] : set.ranges()) {
            CHECK(first < end);
            CHECK((!any || first > last_end));
            any = true;
            last_end = end;
            for (uint64_t block = first; block < end; ++block)
                got.insert(block);
        }
        CHECK(got == model);
        CHECK(set.empty() == model.empty());
    }
}
