// SPDX-License-Identifier: MIT
#include "tests/rowlog/log_model.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>

#include "tests/rowlog/row_options.h"

using namespace cowraid::test;

namespace {

using After = LogStep::After;

// One and two rows, with and without a flush or a commit between.
std::vector<LogRun> short_runs(uint32_t data_columns, uint32_t parity)
{
    const std::vector<std::vector<LogStep>> programs = {
        {{{1}, 0, After::kNothing}, {{2}, 0, After::kFlush}},
        {{{1}, 0, After::kFlush}, {{2}, 0, After::kFlush}},
        {{{1}, 0, After::kCommit}, {{2}, 0, After::kFlush}},
        {{{1, 2}, 0, After::kNothing}, {{2}, 0, After::kFlush}},
        {{{1}, 0, After::kCommit}, {{}, 1, After::kFlush}},
    };
    std::vector<LogRun> runs;
    for (const auto& steps : programs) {
        LogRun run;
        run.data_columns = data_columns;
        run.parity = parity;
        run.log_blocks = 10;
        run.steps = steps;
        for (const LogStep& step : steps)
            run.rows = std::max(run.rows, static_cast<uint32_t>(step.written.size()));
        runs.push_back(run);
    }
    return runs;
}

// The second entry of a row lies where the log has a partial parity of the next append, once it has wrapped.
std::vector<LogRun> overlapping_runs()
{
    std::vector<LogRun> runs;
    for (const uint32_t parity : {1u, 2u}) {
        for (const uint32_t data_columns : {2u, 3u}) {
            LogRun run;
            run.data_columns = data_columns;
            run.parity = parity;
            run.rows = 3;
            run.rotation = 0;
            run.log_blocks = 7;
            run.steps = {{{1}, 0, After::kNothing}, {{2}, 0, After::kNothing}, {{0, 1, 1}, 0, After::kFlush}};
            run.subset_bits = 6;
            run.random_subsets = 30;
            run.fault_share = 4;
            runs.push_back(run);
        }
    }
    return runs;
}

// Rows written again and again, commits between, in a log that is soon full: it wraps, and appends overwrite
// retired entries.
LogRun wrapping_run(uint32_t parity, uint32_t log_blocks, uint64_t seed)
{
    LogRun run;
    run.data_columns = 4;
    run.parity = parity;
    run.rows = 3;
    run.rotation = seed % 2;
    run.log_blocks = log_blocks;
    run.seed = seed;
    run.subset_bits = 5;
    run.random_subsets = 8;
    run.fault_share = 32;
    cowraid::Prng prng(seed);
    constexpr Mask kReused = 7;  // the last column keeps what it has
    Mask free[3] = {kReused, kReused, kReused};
    for (int step = 0; step < 14; ++step) {
        LogStep next;
        for (Mask& columns : free) {
            const auto written = static_cast<Mask>(1u << prng.below(3)) & columns;
            next.written.push_back(prng.chance(2, 3) ? written : 0);
            columns &= ~next.written.back();
        }
        const bool last = free[0] + free[1] + free[2] <= 4;
        next.after = last ? After::kCommit : prng.chance(1, 8) ? After::kFlush : After::kNothing;
        for (Mask& columns : free)
            columns = last ? kReused : columns;
        run.steps.push_back(next);
    }
    run.steps.back().after = After::kFlush;
    return run;
}

LogReport run_all(const char* name, const std::vector<LogRun>& runs, bool nested)
{
    LogReport total;
    for (const LogRun& run : runs)
        total.add(enumerate_log(run, nested));
    MESSAGE(std::string(name) << ": states " << total.states << ", scans " << total.scans << ", checks "
                              << total.checks << ", after a second crash " << total.nested_checks
                              << ", full logs " << total.refusals << ", instants sampled " << total.sampled);
    INFO(total.first_loss);
    INFO(total.first_complaint);
    CHECK(total.losses == 0);
    CHECK(total.complaints == 0);
    return total;
}

std::vector<LogRun> all_short_runs()
{
    std::vector<LogRun> runs;
    for (const auto& [data_columns, parity] :
         std::initializer_list<std::pair<uint32_t, uint32_t>>{{2, 1}, {3, 1}, {2, 2}, {3, 2}})
        for (LogRun& run : short_runs(data_columns, parity))
            runs.push_back(std::move(run));
    // All states with rot and unreadable logs: COWRAID_LONG.
    for (LogRun& run : runs)
        run.fault_share = std::getenv("COWRAID_LONG") != nullptr ? 1 : 3;
    return runs;
}

std::vector<LogRun> all_wrapping_runs()
{
    std::vector<LogRun> runs = overlapping_runs();
    const bool all = std::getenv("COWRAID_LONG") != nullptr;
    for (uint64_t seed = all ? 1 : 2; seed <= (all ? 4 : 3); ++seed)
        for (const uint32_t parity : {1u, 2u})
            runs.push_back(wrapping_run(parity, static_cast<uint32_t>(11 + seed % 3), seed));
    return runs;
}

}  // namespace

TEST_CASE("row log: the real log and scan, every crash of short programs")
{
    const LogReport total = run_all("short", all_short_runs(), false);
    CHECK(total.checks > 100000);
}

TEST_CASE("row log: the real log wraps")
{
    const LogReport total = run_all("wrapping", all_wrapping_runs(), false);
    CHECK(total.refusals >= 4);
    CHECK(total.checks > 100000);
}

TEST_CASE("row log: the real log and programs drawn at random")
{
    const RowOptions& options = row_options();
    CAPTURE(options.seed);
    const time_t end = time(nullptr) + static_cast<time_t>(options.budget_seconds);
    LogReport total;
    uint64_t programs = 0;
    while (options.budget_seconds > 0 ? time(nullptr) < end : programs < 2) {
        const uint64_t seed = options.seed * 1000 + 100 + programs++;
        const auto log_blocks = static_cast<uint32_t>(11 + seed % 5);
        total.add(enumerate_log(wrapping_run(static_cast<uint32_t>(1 + seed % 2), log_blocks, seed), false));
        if (total.losses > 0)
            break;
    }
    MESSAGE("seed " << options.seed << ", programs " << programs << ", states " << total.states << ", checks "
                    << total.checks << ", full logs " << total.refusals);
    INFO(total.first_loss);
    INFO(total.first_complaint);
    CHECK(total.losses == 0);
    CHECK(total.complaints == 0);
    CHECK(total.checks > 10000);
}

TEST_CASE("row log: the real log, and power fails again inside recovery and erasing")
{
    // Every other program with one parity column, the rest with two; all of them with COWRAID_LONG.
    const bool all = std::getenv("COWRAID_LONG") != nullptr;
    std::vector<LogRun> runs;
    bool turn = true;
    for (const auto& [data_columns, parity] :
         std::initializer_list<std::pair<uint32_t, uint32_t>>{{2, 1}, {2, 2}})
        for (LogRun& run : short_runs(data_columns, parity)) {
            run.fault_share = 32;
            if (all || turn)
                runs.push_back(run);
            turn = !turn;
        }
    const LogReport total = run_all("nested", runs, true);
    CHECK(total.nested_checks > 500000);
}

TEST_CASE("row log: the real log with members away from the start")
{
    std::vector<LogRun> runs;
    for (const uint32_t parity : {1u, 2u})
        for (Mask missing = 1; missing < 1u << (3 + parity); missing <<= 1)
            for (LogRun& run : short_runs(3, parity)) {
                run.missing = missing;
                runs.push_back(run);
            }
    const LogReport total = run_all("degraded", runs, false);
    CHECK(total.checks > 50000);
}

TEST_CASE("row log: every wrong use of the real log loses something")
{
    // A row that the log knows, rewritten as a whole without a commit between.
    const std::vector<LogStep> unlogged = {{{1}, 0, After::kFlush}, {{}, 1, After::kFlush}};
    for (const RowMutant mutant :
         {RowMutant::kFloorBeforeCommit, RowMutant::kReusedEarly, RowMutant::kFloorIgnored,
          RowMutant::kGenerationIgnored, RowMutant::kFullRowUnlogged}) {
        std::vector<LogRun> runs = overlapping_runs();
        if (mutant == RowMutant::kFloorBeforeCommit)
            runs = all_wrapping_runs();
        for (LogRun& run : all_short_runs())
            runs.push_back(std::move(run));
        LogReport total;
        for (size_t at = 0; at < runs.size() && total.losses == 0; ++at) {
            LogRun run = runs[at];
            run.mutant = mutant;
            if (mutant == RowMutant::kFullRowUnlogged)
                run.steps = unlogged;
            total.add(enumerate_log(run, false));
        }
        MESSAGE(std::string(mutant_name(mutant)) << ": " << total.first_loss);
        CAPTURE(static_cast<int>(mutant));
        CHECK(total.losses > 0);
    }
}
