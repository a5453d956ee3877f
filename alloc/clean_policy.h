// SPDX-License-Identifier: MIT
// When to empty which block group, and how much of the members' time that may take. Pure.
//
// Which: the one that gives the most free stripes per block moved. That is the benefit per cost of Rosenblum
// and Ousterhout, "The design and implementation of a log-structured file system" (1992), section 3.5,
// without the age of the data, which a group's summary does not know. When: in good time, so that the blocks
// of the group have somewhere to go; and not at all where writing into partial rows costs less
// (alloc/join_policy.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "alloc/allocator.h"
#include "alloc/join_policy.h"

namespace cowraid {

struct CleanPressure {
    // Data blocks of whole free stripes and of slots that no group has.
    uint64_t free_blocks = 0;
    uint64_t total_blocks = 0;  // data blocks of groups, and of slots that no group has
    bool idle = false;  // nobody has written for a while
    bool metadata_short = false;  // groups of other content need slots and there are none
};

class CleanPolicy {
public:
    CleanPolicy(const JoinPolicy& join, uint32_t chunk_bytes);

    // Share of a group's written stripes that may be live (0..1): above, its partial rows are rather filled.
    [[nodiscard]] double live_max() const { return live_max_; }
    // From 0 (plenty of free stripes) to 1 (none).
    [[nodiscard]] static double urgency(const CleanPressure& pressure);
    // The group to empty next, if any. Groups being emptied are not among `groups`.
    [[nodiscard]] std::optional<VolumeAddress> choose(std::span<const GroupNumbers> groups,
                                                      const CleanPressure& pressure) const;
    // The same whatever the need: what gives any stripe back.
    [[nodiscard]] static std::optional<VolumeAddress> choose_any(std::span<const GroupNumbers> groups);
    // What one step moves while somebody else works.
    static constexpr uint64_t kStepBytes = 2 * kMiB;
    // Data blocks to move in one step of a group: whole stripes, about `bytes`.
    [[nodiscard]] static uint64_t step_blocks(uint64_t stripe_blocks, uint64_t bytes);
    // How long to leave the members to others after a step of `step_us` microseconds.
    [[nodiscard]] static uint64_t pause_us(uint64_t step_us, const CleanPressure& pressure);

private:
    double live_max_;
};

}  // namespace cowraid
