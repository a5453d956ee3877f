// SPDX-License-Identifier: MIT
#include "tests/fsynclog/fsync_model.h"

#include <doctest/doctest.h>

#include "base/log.h"
#include "tests/support/test_seed.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

// Up to the first one that loses something.
FsyncReport run_seeds(uint64_t first, uint64_t count, FsyncMutant mutant)
{
    FsyncReport report;
    for (uint64_t seed = first; seed < first + count && report.losses == 0; ++seed)
        report.add(run_fsync_model({.seed = seed, .mutant = mutant}));
    return report;
}

struct Quiet {
    Quiet() { log_set_level(LogLevel::kNone); }
    ~Quiet() { log_set_level(LogLevel::kInfo); }
};

}  // namespace

TEST_CASE("fsync log model: what was acknowledged comes back in order, and nothing else but more of the same")
{
    const Quiet quiet;
    const FsyncReport report = run_seeds(test_seed(1), 3000, FsyncMutant::kNone);
    CAPTURE(report.first_loss);
    MESSAGE("scans " << report.scans << ", appended " << report.appended << ", acknowledged "
                     << report.acknowledged << ", returned " << report.returned << " ("
                     << report.returned_unacknowledged << " not acknowledged), behind gaps "
                     << report.behind_gaps << ", refusals " << report.refusals << ", replaced "
                     << report.replaced << ", wraps " << report.wraps);
    CHECK(report.losses == 0);
    CHECK(report.scans > 20000);
    CHECK(report.acknowledged > 100000);
    CHECK(report.returned > 50000);
    CHECK(report.returned_unacknowledged > 1000);
    CHECK(report.behind_gaps > 500);
    CHECK(report.refusals > 1000);
    CHECK(report.replaced > 1000);
    CHECK(report.wraps > 1000);
}

TEST_CASE("fsync log model: every wrong protocol is caught")
{
    const Quiet quiet;
    uint32_t caught = 0;
    for (auto mutant = static_cast<uint32_t>(FsyncMutant::kNone) + 1;
         mutant < static_cast<uint32_t>(FsyncMutant::kCount); ++mutant) {
        CAPTURE(mutant);
        const FsyncReport report = run_seeds(1, 400, static_cast<FsyncMutant>(mutant));
        MESSAGE("mutant " << mutant << ": " << report.losses << " of " << report.scans
                          << " scans, first: " << report.first_loss);
        CHECK(report.losses > 0);
        caught += report.losses > 0 ? 1 : 0;
    }
    CHECK(caught == static_cast<uint32_t>(FsyncMutant::kCount) - 1);
}

TEST_CASE("fsync log model: a seed repeats itself")
{
    const Quiet quiet;
    const FsyncReport one = run_seeds(77, 5, FsyncMutant::kNone);
    const FsyncReport two = run_seeds(77, 5, FsyncMutant::kNone);
    CHECK(one.appended == two.appended);
    CHECK(one.acknowledged == two.acknowledged);
    CHECK(one.returned == two.returned);
    CHECK(one.appended > 100);
}
