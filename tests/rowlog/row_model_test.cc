// SPDX-License-Identifier: MIT
#include "tests/rowlog/row_model.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <ctime>

#include "tests/rowlog/row_options.h"
#include "tests/rowlog/row_runs.h"

using namespace cowraid::test;

namespace {

// Six members here, eight with COWRAID_LONG; two rows in one append with five and six.
const bool is_long = std::getenv("COWRAID_LONG") != nullptr;
const uint32_t members_max = is_long ? 8 : 6;
const uint32_t batched_members_max = is_long ? 6 : 5;

RowReport run_all(const std::vector<RowRun>& runs)
{
    RowReport total;
    for (const RowRun& run : runs)
        total.add(enumerate_row(run));
    return total;
}

// Every geometry from 3 members, RAID6 from 4, up to `members_max`.
template <typename MakeRuns>
RowReport run_geometries(const char* name, uint32_t members_max, MakeRuns make_runs)
{
    RowReport total;
    for (const uint32_t parity : {1u, 2u})
        for (uint32_t data_columns = 2; data_columns + parity <= members_max; ++data_columns)
            total.add(run_all(make_runs(data_columns, parity)));
    MESSAGE(std::string(name) << ": states " << total.states << ", checks " << total.checks << ", with rot "
                              << total.rot_checks << ", with an unreadable log " << total.log_checks
                              << ", states of a crash in recovery " << total.nested_states
                              << ", checks of them " << total.nested_checks << ", by every reconstruction "
                              << total.slow_checks << ", rows had as a last resort " << total.last_resorts);
    INFO(total.first_loss);
    INFO(total.first_complaint);
    CHECK(total.losses == 0);
    CHECK(total.complaints == 0);
    return total;
}

}  // namespace

TEST_CASE("row log: one row, one- and two-block writes, all sequences of two")
{
    const RowReport total = run_geometries("plain", members_max, plain_runs);
    CHECK(total.sampled == 0);
    CHECK(total.checks > (is_long ? 12000000 : 2000000));
}

TEST_CASE("row log: wrong rows that are code words all the same")
{
    const RowReport total = run_geometries("similar", 5, similar_runs);
    CHECK(total.sampled == 0);
    CHECK(total.rot_checks > 250000);
}

TEST_CASE("row log: a flush of all members in the middle")
{
    const RowReport total = run_geometries("flushed", 6, flushed_runs);
    CHECK(total.sampled == 0);
    CHECK(total.checks > 800000);
}

TEST_CASE("row log: two rows in one append")
{
    const RowReport total = run_geometries("batched", batched_members_max, batched_runs);
    CHECK(total.checks > (is_long ? 2000000 : 1200000));
}

TEST_CASE("row log: a log that is full, and checksums committed to make room")
{
    const RowReport total = run_geometries("full log", 6, full_log_runs);
    CHECK(total.checks > 450000);
}

TEST_CASE("row log: members away from the start")
{
    const RowReport total = run_geometries("degraded", members_max, degraded_runs);
    CHECK(total.sampled == 0);
    CHECK(total.checks > (is_long ? 500000 : 150000));
}

TEST_CASE("row log: power fails again inside recovery")
{
    const RowReport once = run_geometries("nested", 6, [](uint32_t data_columns, uint32_t parity) {
        return nested_runs(data_columns, parity, 1);
    });
    CHECK(once.nested_checks > 590000);
    const RowReport twice = run_geometries("nested twice", 4, [](uint32_t data_columns, uint32_t parity) {
        return nested_runs(data_columns, parity, 2);
    });
    CHECK(twice.nested_checks > 230000);
}

TEST_CASE("row log: programs drawn at random")
{
    const RowOptions& options = row_options();
    CAPTURE(options.seed);
    cowraid::Prng prng(options.seed);
    RowReport total;
    uint64_t programs = 0;
    const time_t end = time(nullptr) + static_cast<time_t>(options.budget_seconds);
    while (options.budget_seconds > 0 ? time(nullptr) < end : programs < 30) {
        total.add(enumerate_row(random_run(prng)));
        ++programs;
        if (total.losses > 0)
            break;
    }
    MESSAGE("seed " << options.seed << ", programs " << programs << ", states " << total.states << ", checks "
                    << total.checks << ", crash points sampled " << total.sampled);
    INFO(total.first_loss);
    INFO(total.first_complaint);
    CHECK(total.losses == 0);
    CHECK(total.complaints == 0);
    CHECK(total.checks > 10000);
}

TEST_CASE("row log: every wrong protocol loses something")
{
    std::vector<RowRun> runs;
    for (const uint32_t parity : {1u, 2u}) {
        for (const auto& make : {plain_runs, similar_runs, flushed_runs, full_log_runs, degraded_runs})
            for (RowRun& run : make(3, parity))
                runs.push_back(std::move(run));
        for (RowRun& run : nested_runs(2, parity, 1))
            runs.push_back(std::move(run));
    }
    uint32_t caught = 0;
    for (auto index = static_cast<uint32_t>(RowMutant::kNone) + 1;
         index < static_cast<uint32_t>(RowMutant::kReusedEarly); ++index) {
        const auto mutant = static_cast<RowMutant>(index);
        RowReport total;
        for (size_t at = 0; at < runs.size() && total.losses == 0; ++at) {
            RowRun run = runs[at];
            run.mutant = mutant;
            total.add(enumerate_row(run));
        }
        MESSAGE(std::string(mutant_name(mutant)) << ": " << total.first_loss);
        CAPTURE(index);
        CHECK(total.losses > 0);
        caught += total.losses > 0 ? 1 : 0;
    }
    CHECK(caught == 26);
}
