// SPDX-License-Identifier: MIT
#include "device/error_budget.h"

#include <algorithm>

namespace cowraid {

void ErrorBudget::spend(uint64_t now, uint32_t weight)
{
    while (!seconds_.empty() && seconds_.front().time + kWindowSeconds <= now)
        seconds_.pop_front();
    if (!seconds_.empty() && seconds_.back().time == now)
        seconds_.back().weight = std::max(seconds_.back().weight, weight);
    else
        seconds_.push_back({now, weight});
}

uint64_t ErrorBudget::spent(uint64_t now) const
{
    uint64_t sum = 0;
    for (const Second& second : seconds_)
        sum += second.time + kWindowSeconds > now ? second.weight : 0;
    return sum;
}

}  // namespace cowraid
