// SPDX-License-Identifier: MIT
// How many errors of a member are too many: what is counted is seconds with errors within a window of time.
#pragma once

#include <cstdint>
#include <deque>

namespace cowraid {

// A burst within a second is one fault, as a damaged track is that is read at once; a disk that tries to read
// one sector takes about that long. Not thread-safe.
class ErrorBudget {
public:
    static constexpr uint64_t kWindowSeconds = 600;

    // An error at a time in seconds of any clock that never goes back. Of one second the heaviest counts.
    void spend(uint64_t now, uint32_t weight);
    // The sum of the last kWindowSeconds.
    [[nodiscard]] uint64_t spent(uint64_t now) const;
    void reset() { seconds_.clear(); }

private:
    struct Second {
        uint64_t time;
        uint32_t weight;
    };
    std::deque<Second> seconds_;  // rising, at most kWindowSeconds
};

}  // namespace cowraid
