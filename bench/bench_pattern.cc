// SPDX-License-Identifier: MIT
#include "bench/bench_pattern.h"

#include <bit>

#include "base/assert.h"

namespace cowraid {

UnitStream::UnitStream(const Plan& plan) : random_(pattern_random(plan.pattern)), prng_(plan.seed)
{
    CW_ASSERT(plan.threads > 0 && plan.thread < plan.threads && plan.unit_count >= plan.threads);
    if (random_) {
        first_ = plan.thread;
        step_ = plan.threads;
        count_ = (plan.unit_count - plan.thread - 1) / plan.threads + 1;
        return;
    }
    uint64_t region = plan.unit_count / plan.threads;
    if (region >= plan.align_units)
        region = round_down(region, plan.align_units);
    first_ = plan.thread * region;
    count_ = region;
}

uint64_t UnitStream::next()
{
    const uint64_t place = random_ ? prng_.below(count_) : position_++ % count_;
    return first_ + place * step_;
}

size_t LatencyHistogram::class_of(uint64_t nanoseconds)
{
    if (nanoseconds < kSteps)
        return nanoseconds;
    // Below the leading bit, the five bits that follow it choose the step.
    const auto shift = static_cast<uint32_t>(std::bit_width(nanoseconds)) - 6;
    return (size_t{shift} + 1) * kSteps + (nanoseconds >> shift) % kSteps;
}

uint64_t LatencyHistogram::upper_bound(size_t index)
{
    if (index < kSteps)
        return index;
    const size_t shift = index / kSteps - 1;
    return ((kSteps + index % kSteps + 1) << shift) - 1;
}

void LatencyHistogram::add(const LatencyHistogram& other)
{
    for (size_t index = 0; index < classes_.size(); ++index)
        classes_[index] += other.classes_[index];
}

uint64_t LatencyHistogram::quantile(double part) const
{
    uint64_t all = 0;
    for (const uint64_t count : classes_)
        all += count;
    const auto wanted = static_cast<uint64_t>(part * static_cast<double>(all));
    uint64_t seen = 0;
    for (size_t index = 0; index < classes_.size(); ++index) {
        seen += classes_[index];
        if (seen > wanted || (seen == all && all > 0))
            return upper_bound(index);
    }
    return 0;
}

}  // namespace cowraid
