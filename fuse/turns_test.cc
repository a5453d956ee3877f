// SPDX-License-Identifier: MIT
#include "fuse/turns.h"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

namespace cowraid {

TEST_CASE("turns: one user's requests keep their order")
{
    Turns<std::unique_ptr<int>> turns;
    CHECK(turns.empty());
    for (int i = 0; i < 3; ++i)
        turns.push(7, std::make_unique<int>(i));
    for (int i = 0; i < 3; ++i) {
        REQUIRE_FALSE(turns.empty());
        CHECK(*turns.take() == i);
    }
    CHECK(turns.empty());
}

TEST_CASE("turns: who asks for much does not keep another user waiting")
{
    Turns<int> turns;
    for (int i = 0; i < 1500; ++i)
        turns.push(1000, i);
    CHECK(turns.take() == 0);
    turns.push(1001, 5000);
    turns.push(1001, 5001);
    turns.push(1002, 6000);
    std::vector<int> taken;
    for (int i = 0; i < 6; ++i) {
        const int item = turns.take();
        taken.push_back(item);
        // As one that goes on for long: behind the others of its user.
        if (item == 5000)
            turns.push(1001, 5000);
    }
    CHECK(taken == std::vector<int>{1, 5000, 6000, 2, 5001, 3});
    CHECK(turns.take() == 5000);
    for (int i = 4; i < 1500; ++i)
        CHECK(turns.take() == i);
    CHECK(turns.empty());
}

}  // namespace cowraid
