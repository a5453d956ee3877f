// SPDX-License-Identifier: MIT
#include "sim/spindle_model.h"

#include <algorithm>
#include <cmath>

#include "base/assert.h"

namespace cowraid {

SpindleModel::SpindleModel(const SpindleConstants& constants, uint64_t size_bytes, uint64_t phase)
    : constants_(constants),
      track_count_(
          std::max<uint64_t>(divide_up(size_bytes, uint64_t{constants.track_blocks} * kBlockBytes), 1)),
      phase_(phase),
      read_(fit(constants.read)),
      write_(fit(constants.write))
{
    CW_ASSERT(constants.track_blocks > 0 && constants.turn > 0);
    CW_ASSERT(constants.stroke_share > 0 && constants.stroke_share <= 1);
}

// The curve through the three published times. Two random tracks lie x apart with density 2 (1 - x), which
// makes the mean of sqrt(x) 8/15 and that of x 1/3.
SpindleModel::Curve SpindleModel::fit(const SeekTimes& times)
{
    const auto base = static_cast<double>(times.single_track);
    const double full = static_cast<double>(times.full_stroke) - base;
    const double average = static_cast<double>(times.average) - base;
    const double root = (average - full / 3) / (8.0 / 15 - 1.0 / 3);
    return {base, root, full - root};
}

uint64_t SpindleModel::seek(bool write, uint64_t from, uint64_t to) const
{
    if (from == to)
        return 0;
    const Curve& curve = write ? write_ : read_;
    const uint64_t distance = std::max(from, to) - std::min(from, to);
    if (distance == 1)
        return static_cast<uint64_t>(curve.base);
    const double part =
        static_cast<double>(distance) / static_cast<double>(track_count_) * constants_.stroke_share;
    return static_cast<uint64_t>(curve.base + curve.root * std::sqrt(part) + curve.linear * part);
}

uint64_t SpindleModel::angle(uint64_t block) const
{
    const uint64_t track = block / constants_.track_blocks;
    const uint64_t place = block % constants_.track_blocks + track * constants_.skew_blocks;
    return place % constants_.track_blocks * constants_.turn / constants_.track_blocks;
}

SpindleService SpindleModel::serve(bool write, uint64_t offset, uint64_t bytes, uint64_t track,
                                   uint64_t start) const
{
    CW_ASSERT(bytes > 0);
    const uint64_t first = offset / kBlockBytes;
    const uint64_t last = (offset + bytes - 1) / kBlockBytes;
    const uint64_t arrived = start + seek(write, track, first / constants_.track_blocks);
    const uint64_t under_head = (arrived + phase_) % constants_.turn;
    const uint64_t wait = (angle(first) + constants_.turn - under_head) % constants_.turn;
    const uint64_t crossings = last / constants_.track_blocks - first / constants_.track_blocks;
    const uint64_t passing = last - first + 1 + crossings * constants_.skew_blocks;
    return {
        .transfer_start = arrived + wait,
        .end = arrived + wait + passing * constants_.turn / constants_.track_blocks,
        .last_track = last / constants_.track_blocks,
    };
}

}  // namespace cowraid
