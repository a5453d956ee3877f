// SPDX-License-Identifier: MIT
// Rows written in place through the real write-intent log (journal/intent_log.h) on simulated members, every
// request recorded block by block, for log_model.h to replay.
#pragma once

#include <memory>
#include <vector>

#include "base/buffer.h"
#include "journal/intent_log.h"
#include "sim/recording_device.h"
#include "sim/sim_device.h"
#include "tests/rowlog/row_world.h"

namespace cowraid::test {

struct LogStep {
    std::vector<Mask> written;  // data columns, by row; a row may be left out at the end
    Mask whole = 0;  // rows written as a whole, without an entry
    // kFlush: all members are flushed and the rows' checksums committed, with a superblock of the same
    // generation; kCommit: of the next one.
    enum class After : uint8_t { kNothing, kFlush, kCommit } after = After::kNothing;
};

struct LogRun {
    uint32_t data_columns = 2;
    uint32_t parity = 1;
    uint32_t rows = 1;
    uint32_t rotation = 1;  // members between a row's columns and the next one's; 0: all have the same
    uint32_t log_blocks = 8;
    std::vector<LogStep> steps;
    Mask missing = 0;
    RowMutant mutant = RowMutant::kNone;
    uint64_t seed = 1;
    // Where more than this many blocks are in caches: none of them, all, each alone, all but each, and some
    // subsets drawn at random, instead of every subset.
    uint32_t subset_bits = 10;
    uint32_t random_subsets = 300;
    uint32_t fault_share = 1;  // of so many states one is tried with rot and unreadable logs, too
};

// What holds from some moment on.
struct LogPromise {
    std::vector<std::vector<uint32_t>> blocks;  // by row and data column: content, or kFree
    std::vector<std::vector<Checksum>> recorded;  // by row and column, parity too: what the trees say
    Generation generation;  // of the superblock
};

// The program, run to its end. Block numbers on a member: the log, then one block of each row.
class LogWorld {
public:
    static constexpr uint32_t kFree = UINT32_MAX;
    static constexpr uint64_t kEpoch = 77;

    explicit LogWorld(const LogRun& log_run);

    [[nodiscard]] uint32_t members() const { return run.data_columns + run.parity; }
    [[nodiscard]] uint32_t blocks() const { return run.log_blocks + run.rows; }
    [[nodiscard]] uint32_t member_of(uint32_t row, uint32_t column) const
    {
        return (column + row * run.rotation) % members();
    }
    [[nodiscard]] const std::byte* content(uint32_t index) const { return contents_[index].data(); }
    [[nodiscard]] bool away(uint32_t member) const { return (run.missing >> member & 1) != 0; }

    const LogRun& run;
    Superblock superblock;
    Recorder recorder;
    std::vector<LogPromise> promises;  // by value of the recorder's marks; the first holds from the start
    uint64_t refusals = 0;  // appends that found the log full
    bool stuck = false;  // one found it full even after everything was retired

private:
    struct Row {
        std::vector<uint32_t> now;
        Mask modified = 0;
        Mask unacknowledged = 0;
    };

    uint32_t add_content();
    void make_parity(const Row& row, Mask left_out, AlignedBuffer& out) const;
    void set_up();
    void promise();
    void record_sums();
    void forget(uint32_t row, Mask columns);
    void write_block(uint32_t row, uint32_t column, const std::byte* block);
    void append(IntentLog& log, const LogStep& step);
    bool try_append(IntentLog& log, const LogStep& step);
    void write_in_place(uint32_t row, Mask columns);
    void write_whole(uint32_t row);
    void flush_all(IntentLog& log, bool commit);
    void flush_members_and_retire(IntentLog& log);

    Prng prng_;
    std::vector<AlignedBuffer> contents_;
    std::vector<std::unique_ptr<SimDevice>> disks_;
    MemberSet members_;
    std::vector<Row> rows_;
    LogPromise now_;
    std::vector<uint64_t> sequences_;  // of the step's rows, until they are written
};

}  // namespace cowraid::test
