// SPDX-License-Identifier: MIT
// Which addresses a benchmark's threads use, and how long their operations took.
#pragma once

#include <array>
#include <cstdint>

#include "base/random.h"
#include "bench/bench_options.h"

namespace cowraid {

// The operations of one thread, as numbers of units of --block-size. No two threads share one, so that the
// content of every unit is known; threads of random patterns share rows and stripes.
class UnitStream {
public:
    struct Plan {
        BenchPattern pattern;
        uint64_t unit_count;  // of the volume; at least `threads`
        uint64_t align_units;  // sequential threads begin at multiples of it, where there is room
        uint32_t thread;
        uint32_t threads;
        uint64_t seed;
    };
    explicit UnitStream(const Plan& plan);
    // A random stream may repeat itself, a sequential one begins again at its end.
    uint64_t next();
    // How many different units it has.
    [[nodiscard]] uint64_t unit_count() const { return count_; }

private:
    const bool random_;
    uint64_t first_ = 0;
    uint64_t step_ = 1;
    uint64_t count_ = 0;
    uint64_t position_ = 0;
    Prng prng_;
};

// How many operations took how long, in classes 3 % wide.
class LatencyHistogram {
public:
    void add(uint64_t nanoseconds) { ++classes_[class_of(nanoseconds)]; }
    void add(const LatencyHistogram& other);
    // Upper bound of the class in which the given part (0 to 1) of all lies; 0 when there are none.
    [[nodiscard]] uint64_t quantile(double part) const;

private:
    static constexpr uint32_t kSteps = 32;  // per power of two
    static size_t class_of(uint64_t nanoseconds);
    static uint64_t upper_bound(size_t index);
    std::array<uint64_t, 60 * size_t{kSteps}> classes_{};
};

}  // namespace cowraid
