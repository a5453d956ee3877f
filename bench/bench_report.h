// SPDX-License-Identifier: MIT
// The results of `cowraid bench raid56` for people and for programs.
#pragma once

#include <span>

#include "bench/bench_run.h"
#include "control/json.h"

namespace cowraid {

// All rounds of one set of options.
struct BenchSeries {
    std::string name;  // "plug=on"; empty when nothing is compared
    BenchOptions options;
    std::vector<BenchResult> rounds;

    // The round with the median throughput; the lower of two. Not for an empty series.
    [[nodiscard]] const BenchResult& median() const;
};

// Throughput of the first series by that of the second, of every round and the median of these.
struct BenchRatio {
    double median = 0;
    std::vector<double> rounds;
};
BenchRatio ratio_of(const BenchSeries& first, const BenchSeries& second);

void print_series(const BenchSeries& series);
void print_ratio(const BenchSeries& first, const BenchSeries& second);
// {"schema": "cowraid.bench-raid56", ...}: every round of every series; scripts/plot_bench.py draws it.
Json encode_bench(std::span<const BenchSeries> series);

}  // namespace cowraid
