// SPDX-License-Identifier: MIT
#include "tests/rowlog/row_runs.h"

#include <algorithm>
#include <bit>

namespace cowraid::test {

namespace {

// Masks of one or two data columns.
std::vector<Mask> small_writes(uint32_t data_columns)
{
    std::vector<Mask> writes;
    for (Mask mask = 1; mask < 1u << data_columns; ++mask)
        if (std::popcount(mask) <= 2)
            writes.push_back(mask);
    return writes;
}

RowRun make_run(uint32_t data_columns, uint32_t parity, const std::vector<Mask>& writes)
{
    RowRun run;
    run.data_columns = data_columns;
    run.parity = parity;
    run.seed = data_columns * 31 + parity;
    for (const Mask mask : writes)
        run.steps.push_back({{mask, 0}, false});
    return run;
}

}  // namespace

std::vector<RowRun> plain_runs(uint32_t data_columns, uint32_t parity)
{
    std::vector<RowRun> runs;
    const std::vector<Mask> writes = small_writes(data_columns);
    for (const Mask one : writes)
        runs.push_back(make_run(data_columns, parity, {one}));
    // An address is written once between free and free: the second write takes other blocks.
    for (const Mask one : writes)
        for (const Mask two : writes)
            if ((one & two) == 0)
                runs.push_back(make_run(data_columns, parity, {one, two}));
    if (data_columns >= 3) {
        runs.push_back(make_run(data_columns, parity, {1, 2, 4}));
        runs.push_back(make_run(data_columns, parity, {4, 1, 2}));
    }
    if (data_columns >= 4)
        runs.push_back(make_run(data_columns, parity, {3, 4, 8}));
    for (RowRun& run : runs) {
        uint32_t blocks = 0;
        for (const RowStep& step : run.steps)
            blocks += static_cast<uint32_t>(std::popcount(step.written[0]));
        run.max_faults = data_columns + parity <= 5 ? 2 : blocks <= 2 || data_columns <= 4 ? 1 : 0;
    }
    return runs;
}

std::vector<RowRun> similar_runs(uint32_t data_columns, uint32_t parity)
{
    std::vector<RowRun> runs = plain_runs(data_columns, parity);
    for (RowRun& run : runs)
        run.similar = true;
    return runs;
}

std::vector<RowRun> flushed_runs(uint32_t data_columns, uint32_t parity)
{
    std::vector<RowRun> runs;
    for (RowRun& run : plain_runs(data_columns, parity)) {
        if (run.steps.size() < 2)
            continue;
        run.steps[0].flush = true;
        runs.push_back(run);
        if (run.steps.size() < 3)
            continue;
        run.steps[1].flush = true;
        runs.push_back(run);
        run.steps[0].flush = false;
        runs.push_back(run);
    }
    return runs;
}

std::vector<RowRun> full_log_runs(uint32_t data_columns, uint32_t parity)
{
    const std::vector<std::vector<RowStep>> programs = {
        {{{1, 0}, false, true}, {{2, 0}, false}},
        {{{1, 0}, false, true}, {{0, 1}, false}},
        {{{1, 2}, false, true}, {{0, 1}, false}},
        {{{3, 0}, false, true}, {{0, 2}, true}, {{0, 1}, false}},
        {{{1, 1}, false}, {{2, 0}, false, true}, {{0, 2}, false}},
        {{{1, 0}, false, true}, {{0, 1}, false, true}, {{2, 0}, false}},
    };
    std::vector<RowRun> runs;
    for (const auto& steps : programs) {
        RowRun run = make_run(data_columns, parity, {});
        run.rows = 2;
        run.steps = steps;
        run.max_faults = data_columns + parity > 5 ? 0 : 1;
        runs.push_back(run);
    }
    return runs;
}

std::vector<RowRun> batched_runs(uint32_t data_columns, uint32_t parity)
{
    const std::vector<std::vector<RowStep>> programs = {
        {{{1, 1}, false}},
        {{{1, 2}, false}},
        {{{3, 1}, false}},
        {{{1, 1}, false}, {{2, 0}, false}},
        {{{1, 0}, false}, {{2, 1}, false}},
        {{{1, 2}, true}, {{2, 1}, false}},
        {{{0, 1}, true}, {{2, 2}, false}},
    };
    std::vector<RowRun> runs;
    for (const auto& steps : programs) {
        RowRun run = make_run(data_columns, parity, {});
        run.rows = 2;
        run.steps = steps;
        run.max_faults = data_columns + parity > 5 ? 1 : 2;
        runs.push_back(run);
    }
    return runs;
}

std::vector<RowRun> degraded_runs(uint32_t data_columns, uint32_t parity)
{
    std::vector<std::vector<RowStep>> programs;
    for (const Mask one : {1u, 3u, 2u})
        programs.push_back({{{one, 0}, false}});
    for (const bool flush : {false, true}) {
        programs.push_back({{{1, 0}, flush}, {{2, 0}, false}});
        programs.push_back({{{2, 0}, flush}, {{1, 0}, false}});
        if (data_columns >= 3) {
            programs.push_back({{{3, 0}, flush}, {{4, 0}, false}});
            programs.push_back({{{1, 0}, flush}, {{2, 0}, false}, {{4, 0}, false}});
        }
    }
    std::vector<RowRun> runs;
    for (Mask missing = 1; missing < 1u << (data_columns + parity); ++missing) {
        if (static_cast<uint32_t>(std::popcount(missing)) > parity)
            continue;
        for (const auto& steps : programs) {
            RowRun run = make_run(data_columns, parity, {});
            run.steps = steps;
            run.missing = missing;
            runs.push_back(run);
        }
    }
    return runs;
}

std::vector<RowRun> nested_runs(uint32_t data_columns, uint32_t parity, uint32_t depth)
{
    std::vector<RowRun> runs;
    for (const std::vector<Mask>& writes : std::vector<std::vector<Mask>>{{1}, {3}, {1, 2}, {2, 1}}) {
        runs.push_back(make_run(data_columns, parity, writes));
        if (writes.size() < 2)
            continue;
        runs.push_back(runs.back());
        runs.back().steps[0].flush = true;
    }
    const size_t whole = runs.size();
    for (size_t index = 0; index < whole && parity == 2; ++index) {
        runs.push_back(runs[index]);
        runs.back().missing = 1u << (index % (data_columns + parity));
    }
    for (RowRun& run : runs)
        run.nested_depth = depth;
    return runs;
}

RowRun random_run(Prng& prng)
{
    RowRun run;
    run.parity = static_cast<uint32_t>(prng.between(1, 2));
    run.data_columns = static_cast<uint32_t>(prng.between(2, 4));
    run.rows = static_cast<uint32_t>(prng.between(1, 2));
    run.seed = prng.next();
    run.max_faults = static_cast<uint32_t>(prng.between(0, run.rows == 1 ? 2 : 1));
    run.nested_depth = prng.chance(1, 4) ? 1 : 0;
    for (uint32_t away = 0; away < run.parity; ++away)
        if (prng.chance(1, 4))
            run.missing |= 1u << prng.below(run.data_columns + run.parity);
    const Mask all = (1u << run.data_columns) - 1;
    std::array<Mask, kMaxRows> free{all, all};
    const uint64_t steps = prng.between(1, run.nested_depth > 0 ? 2 : 3);
    for (uint64_t step = 0; step < steps; ++step) {
        RowStep next;
        next.flush = prng.chance(1, 3);
        next.log_full = prng.chance(1, 3);
        for (uint32_t row = 0; row < run.rows; ++row) {
            next.written[row] = static_cast<Mask>(prng.next()) & static_cast<Mask>(prng.next()) & free[row];
            free[row] &= ~next.written[row];
        }
        if ((next.written[0] | next.written[1]) != 0)
            run.steps.push_back(next);
    }
    if (run.steps.empty())
        run.steps.push_back({{1, 0}, false});
    return run;
}

}  // namespace cowraid::test
