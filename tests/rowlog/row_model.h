// SPDX-License-Identifier: MIT
// One row of a stripe on members with volatile caches: partial writes under the write-intent log, cut short
// at every point with every subset of unflushed writes, members lost before and after recovery. Drives the
// real entries (format/intent_codec.h) and the real recovery (raid56/row_recovery.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cowraid::test {

// Wrong protocols; each must lose something somewhere.
enum class RowMutant : uint8_t {
    kNone,
    kNotCumulative,  // an entry marks only the blocks of its own write
    kLogNotFlushed,  // in-place writes do not wait for the entry
    kLogOnP,  // RAID6 keeps no entry on Q's member
    kPartialOfAll,  // the logged parity is that of the whole row
    kOldParity,  // in-place writes leave parity as it was
    kWrongSums,  // the checksums of unmodified blocks are left out
    kAckUnflushed,  // acknowledged before all members were flushed
    kCount,
};

struct RowRun {
    uint32_t data_columns = 3;
    uint32_t parity = 1;
    std::vector<std::vector<uint32_t>> writes;  // data columns of each write, in order; one flush at the end
    RowMutant mutant = RowMutant::kNone;
};

struct RowReport {
    uint64_t states = 0;
    uint64_t checks = 0;
    uint64_t losses = 0;
    std::string first_loss;
};

RowReport enumerate_row(const RowRun& run);

}  // namespace cowraid::test
