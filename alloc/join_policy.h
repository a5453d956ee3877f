// SPDX-License-Identifier: MIT
// When to write blocks into rows that hold others: by what it costs beside making room for whole rows.
#pragma once

#include <cstdint>

#include "alloc/allocator.h"

namespace cowraid {

// Time of one request to a member of the given length: request_us + kib_us * KiB, in microseconds.
struct MemberCost {
    double request_us = 0;
    double kib_us = 0;
};

// Loop devices over memory, measured beside this program; a hard disk and a solid state drive, for comparison
// (sources in docs/BENCHMARKS.md).
inline constexpr MemberCost kLoopCost{5.5, 0.15};
inline constexpr MemberCost kDiskCost{8500, 4.0};
inline constexpr MemberCost kFlashCost{4, 0.05};

class JoinPolicy {
public:
    // `data_columns` and `parity` of a typical block group, chunk in bytes. `join_above`, unless negative,
    // stands for the crossover.
    JoinPolicy(const MemberCost& cost, uint32_t data_columns, uint32_t parity, uint32_t chunk_bytes,
               double join_above = -1);

    // Microseconds of all members together to write `kib` KiB that lie together into a row that holds other
    // blocks: old data and parity read, parity before and after written, log entries in batches.
    [[nodiscard]] double join_us(double kib) const;
    // The same as part of whole stripes, when the emptiest block groups are `live` full (0..1) and are
    // cleaned to make room: what is live in them is read, and written again with the new.
    [[nodiscard]] double clean_us(double kib, double live) const;
    // Share of the space that is used above which joining is cheaper. Cleaning the emptiest group first under
    // uniform overwrites finds it `live` full where the volume is (1 - live) / -ln(live) full (Robinson,
    // "Analysis of steady-state segment storage utilizations", 1996).
    [[nodiscard]] double crossover(double kib) const;

    // How many of `block_count` blocks should join rows: none below the crossover, then what does not fill
    // stripes, as far as there are partial rows. `unassigned_blocks`: of slots that no group has yet.
    [[nodiscard]] uint64_t blocks_to_join(const SpaceNumbers& data, uint64_t unassigned_blocks,
                                          uint64_t block_count) const;

private:
    MemberCost cost_;
    uint32_t data_columns_;
    uint32_t parity_;
    uint32_t chunk_bytes_;
    double join_above_;
};

}  // namespace cowraid
