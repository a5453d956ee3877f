// SPDX-License-Identifier: MIT
#include "device/error_budget.h"

#include <doctest/doctest.h>

namespace cowraid {

TEST_CASE("a burst is one error, errors of many seconds add up, and old ones are forgotten")
{
    ErrorBudget budget;
    CHECK(budget.spent(5) == 0);
    for (int i = 0; i < 10000; ++i)
        budget.spend(100, 1);
    CHECK(budget.spent(100) == 1);
    budget.spend(100, 5);
    budget.spend(100, 1);
    CHECK(budget.spent(100) == 5);
    for (uint64_t second = 101; second <= 119; ++second)
        budget.spend(second, 1);
    CHECK(budget.spent(119) == 24);
    CHECK(budget.spent(100 + ErrorBudget::kWindowSeconds - 1) == 24);
    CHECK(budget.spent(100 + ErrorBudget::kWindowSeconds) == 19);
    CHECK(budget.spent(119 + ErrorBudget::kWindowSeconds) == 0);
    // One sector in a while never adds up.
    for (uint64_t second = 1000; second < 100000; second += 60)
        budget.spend(second, 1);
    CHECK(budget.spent(100000) <= 10);
    budget.reset();
    CHECK(budget.spent(100000) == 0);
}

}  // namespace cowraid
