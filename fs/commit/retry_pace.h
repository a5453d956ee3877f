// SPDX-License-Identifier: MIT
// When work that failed is tried again: what stood in the way may be gone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/status.h"

namespace cowraid {

class RetryPace {
public:
    RetryPace(uint64_t first_pause_ms, uint64_t now_ms)
        : first_pause_ms_(first_pause_ms), pause_ms_(first_pause_ms), next_ms_(now_ms + first_pause_ms)
    {
    }

    // `retry()`: kNotFound: there is nothing to be tried. `waits()`: whether something is not done, also
    // while it is tried. What fails after all was done, whoever did it, waits for the first pause again.
    template <typename Waits, typename Retry> void step(uint64_t now_ms, Waits waits, Retry retry)
    {
        if (pause_ms_ > first_pause_ms_ && !waits()) {
            pause_ms_ = first_pause_ms_;
            next_ms_ = now_ms + pause_ms_;
        }
        if (now_ms < next_ms_)
            return;
        const Status started = retry();
        if (started.ok())
            pause_ms_ = std::min(std::max(kPauseMaxMs, first_pause_ms_), kFactor * pause_ms_);
        else if (started.err() == Err::kNotFound)
            pause_ms_ = first_pause_ms_;
        next_ms_ = now_ms + pause_ms_;
    }

private:
    static constexpr uint64_t kPauseMaxMs = 24 * 3600 * 1000, kFactor = 4;

    const uint64_t first_pause_ms_;
    uint64_t pause_ms_, next_ms_;
};

}  // namespace cowraid
