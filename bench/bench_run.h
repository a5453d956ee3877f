// SPDX-License-Identifier: MIT
// One run of `cowraid bench raid56`: fill, measure, verify.
#pragma once

#include <string>
#include <vector>

#include "bench/bench_members.h"
#include "bench/bench_pattern.h"
#include "sim/spindle_device.h"

namespace cowraid {

// Times are the members': with a time scale, simulated ones.
struct BenchResult {
    uint64_t operations = 0;
    uint64_t bytes = 0;
    uint64_t elapsed_ns = 0;  // with the log writes, and the flush of all members at the end
    uint64_t p50_ns = 0, p99_ns = 0;  // from handing over until it was seen to be done
    MemberCounts members;  // without that flush
    PartialWriteStatistics partial{};
    // Bytes per tick of the time between start and end.
    std::vector<uint64_t> bytes_per_tick;
    // Of all simulated drives; `late` says how far the machine's clock missed.
    SpindleStatistics spindles;
    uint64_t spindle_count = 0;
    bool verified = false;
    uint64_t bad_blocks = 0;

    static constexpr uint64_t kTickNs = 100'000'000;
    [[nodiscard]] double bytes_per_second() const;
};

// kCorrupt: a write was not recorded as what it was. `why` on failure.
Result<BenchResult> run_bench(const BenchOptions& options, std::string& why);

}  // namespace cowraid
