// SPDX-License-Identifier: MIT
// The mechanics of a disk drive as arithmetic: seek, rotation, transfer. docs/BENCHMARKS.md, "Spindle model",
// says where the numbers come from.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace cowraid {

// Seek times as data sheets have them, in nanoseconds.
struct SeekTimes {
    uint64_t single_track;
    uint64_t average;  // over all pairs of tracks
    uint64_t full_stroke;
};

// A 7,200 rpm nearline drive of 1 TB.
struct SpindleConstants {
    uint64_t turn = 8333333;  // nanoseconds
    uint32_t track_blocks = 179;  // of 4 KiB
    // The next track begins this much later, so that a head that moves on to it meets its first block.
    uint32_t skew_blocks = 10;
    SeekTimes read{230000, 7500000, 17060000};
    SeekTimes write{440000, 8500000, 18080000};
    uint64_t command = 200000;  // from a request's arrival until the heads may move for it; overlaps others
    // The member, however small, lies over this part of the stroke from the outermost track on.
    double stroke_share = 0.4;
};

// One request's way over the platter; model time in nanoseconds, from any fixed moment.
struct SpindleService {
    uint64_t transfer_start = 0;
    uint64_t end = 0;
    uint64_t last_track = 0;  // where the heads are then
};

// Pure; the heads' position and the time are the caller's.
class SpindleModel {
public:
    // `phase`: how far the platter of this drive has turned at time 0, in nanoseconds.
    SpindleModel(const SpindleConstants& constants, uint64_t size_bytes, uint64_t phase);

    // What a transfer of `bytes` at `offset` takes when the heads leave `track` at `start`. Block aligned,
    // inside the drive, not empty.
    [[nodiscard]] SpindleService serve(bool write, uint64_t offset, uint64_t bytes, uint64_t track,
                                       uint64_t start) const;
    // Nanoseconds from track to track, without rotation; 0 when they are the same.
    [[nodiscard]] uint64_t seek(bool write, uint64_t from, uint64_t to) const;
    [[nodiscard]] const SpindleConstants& constants() const { return constants_; }
    [[nodiscard]] uint64_t track_count() const { return track_count_; }

private:
    // single track + root * sqrt(x) + linear * x, x being the part of the full stroke.
    struct Curve {
        double base, root, linear;
    };
    static Curve fit(const SeekTimes& times);
    // Nanoseconds of a turn after which the block passes under the heads.
    [[nodiscard]] uint64_t angle(uint64_t block) const;

    const SpindleConstants constants_;
    const uint64_t track_count_;
    const uint64_t phase_;
    const Curve read_;
    const Curve write_;
};

}  // namespace cowraid
