// SPDX-License-Identifier: MIT
#include "alloc/clean_policy.h"

#include <algorithm>

namespace cowraid {

namespace {

// Share of the space in free stripes below which cleaning begins.
constexpr double kScarce = 0.125;
// When idle, groups are emptied up to this share of free stripes, if at most half of them is live: moving
// more than comes free wears the members for nothing.
constexpr double kIdleScarce = 0.25;
constexpr double kIdleLive = 0.5;
// Least gain worth the commits: a share of the group.
constexpr uint64_t kLeastGain = 16;
// Shares of the time: at the begin of scarcity, at its end, and when nobody else wants it.
constexpr double kShareMin = 1.0 / 16;
constexpr double kShareMax = 0.5;

// Blocks of stripes that become free.
uint64_t gain_of(const GroupNumbers& group)
{
    const uint64_t kept = group.live_blocks + group.pinned_blocks + group.free_stripe_blocks;
    return group.total_blocks > kept ? group.total_blocks - kept : 0;
}

// What part of the stripes it gives back is live, by blocks moved per block of stripe emptied.
double live_share(const GroupNumbers& group)
{
    const uint64_t gain = gain_of(group);
    return static_cast<double>(group.live_blocks) / static_cast<double>(group.live_blocks + gain);
}

bool usable(const GroupNumbers& group)
{
    return !group.planned && !group.broken;
}

double free_share(const CleanPressure& pressure)
{
    if (pressure.total_blocks == 0)
        return 1;
    return static_cast<double>(pressure.free_blocks) / static_cast<double>(pressure.total_blocks);
}

std::optional<VolumeAddress> emptiest(std::span<const GroupNumbers> groups, double live_max,
                                      uint64_t least_gain_divisor)
{
    std::optional<VolumeAddress> best;
    double best_share = live_max;
    for (const GroupNumbers& group : groups) {
        const uint64_t gain = gain_of(group);
        if (!usable(group) || gain == 0 || gain < group.total_blocks / least_gain_divisor)
            continue;
        const double share = live_share(group);
        if (share > best_share || (best && share == best_share))
            continue;
        best = group.address;
        best_share = share;
    }
    return best;
}

}  // namespace

// The largest share for which making room costs less than joining rows, found by halving: the one cost rises
// with it, the other does not depend on it.
CleanPolicy::CleanPolicy(const JoinPolicy& join, uint32_t chunk_bytes)
{
    const double kib = static_cast<double>(chunk_bytes) / 1024;
    double low = 0;
    double high = 1;
    for (int step = 0; step < 50; ++step) {
        const double live = (low + high) / 2;
        (join.clean_us(kib, live) < join.join_us(kib) ? low : high) = live;
    }
    live_max_ = low;
}

double CleanPolicy::urgency(const CleanPressure& pressure)
{
    return std::clamp((kScarce - free_share(pressure)) / kScarce, 0.0, 1.0);
}

std::optional<VolumeAddress> CleanPolicy::choose(std::span<const GroupNumbers> groups,
                                                 const CleanPressure& pressure) const
{
    if (pressure.metadata_short) {
        for (const GroupNumbers& group : groups)
            if (usable(group) && group.live_blocks == 0 && group.pinned_blocks == 0)
                return group.address;
    }
    if (pressure.metadata_short || urgency(pressure) > 0)
        return emptiest(groups, live_max_, kLeastGain);
    if (pressure.idle && free_share(pressure) < kIdleScarce)
        return emptiest(groups, std::min(live_max_, kIdleLive), kLeastGain);
    return {};
}

std::optional<VolumeAddress> CleanPolicy::choose_any(std::span<const GroupNumbers> groups)
{
    return emptiest(groups, 1.0, UINT64_MAX);
}

uint64_t CleanPolicy::step_blocks(uint64_t stripe_blocks, uint64_t bytes)
{
    return std::max<uint64_t>(1, bytes / kBlockBytes / stripe_blocks) * stripe_blocks;
}

uint64_t CleanPolicy::pause_us(uint64_t step_us, const CleanPressure& pressure)
{
    const double share = pressure.idle ? kShareMax : kShareMin + (kShareMax - kShareMin) * urgency(pressure);
    return static_cast<uint64_t>(static_cast<double>(step_us) * (1 / share - 1));
}

}  // namespace cowraid
