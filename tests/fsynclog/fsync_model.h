// SPDX-License-Identifier: MIT
// A life of the fsync log after another, on simulated members: batches in flight side by side, commits in
// between, faults on up to m members, a power cut, a scan. Drives the real ring and the real scan on one
// thread, in an order that a seed repeats.
#pragma once

#include <cstdint>
#include <string>

namespace cowraid::test {

// Wrong protocols; each must lose or forge something somewhere.
enum class FsyncMutant : uint8_t {
    kNone,
    kNotDurable,  // acknowledged when written, durable or not
    kOneCopy,  // one member only
    kAckOutOfOrder,  // acknowledged when durable, whatever became of earlier batches
    kFirstIgnored,  // replay begins with the lowest record found
    kGapIgnored,  // what stands behind a gap is replayed as well
    kOldGeneration,  // records of the last commit are taken for live
    kNewestEpoch,  // records of an earlier epoch are taken for dead
    kNoChecksum,  // blocks are taken as they are
    kSequenceUncovered,  // the checksum does not cover the sequence
    kReuseEarly,  // room is free before the commit is durable
    kCommitTooLow,  // the commit after a replay is just the next one
    kStaleTaken,  // records of a generation follow those of a younger one
    kCount,
};

struct FsyncRun {
    uint64_t seed = 1;
    uint32_t lives = 8;
    FsyncMutant mutant = FsyncMutant::kNone;
};

struct FsyncReport {
    uint64_t scans = 0;
    uint64_t appended = 0, acknowledged = 0;  // records
    uint64_t returned = 0, returned_unacknowledged = 0;  // records that scans brought back
    uint64_t behind_gaps = 0;  // live batches that scans left out
    uint64_t refusals = 0;  // a full ring
    uint64_t replaced = 0;  // copies written to another member after a failure
    uint64_t wraps = 0;  // copies that began a ring anew
    uint64_t losses = 0;  // scans that broke the promise
    std::string first_loss;

    void add(const FsyncReport& other);
};

FsyncReport run_fsync_model(const FsyncRun& run);

}  // namespace cowraid::test
