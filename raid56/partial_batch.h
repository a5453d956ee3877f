// SPDX-License-Identifier: MIT
// One batch of writes in place, from the locks of its stripes to their release.
#pragma once

#include <span>
#include <vector>

#include "raid56/io_plan.h"
#include "raid56/partial_write.h"
#include "raid56/row_plan.h"
#include "raid56/row_set.h"

namespace cowraid {

// One row of the batch. Without blocks it is only read, on the way of its neighbours.
struct RowJob {
    PendingStripe* stripe = nullptr;
    CachedRow* cached = nullptr;
    uint32_t row = 0;
    std::span<PendingBlock> blocks;  // rising columns; of equal ones the last counts
    RowSituation situation;
    RowPlan plan;
    RowBits bad;  // read, and not what it must be
    RowBits charged;  // of the bad ones: counted on their member
    RowBits unread;  // of the bad ones: they could not be read
    RowBits rewrite;  // bad data that the write leaves alone: solved or adopted, to be stored again
    RowBits adopted;  // free blocks of which another content is recorded: it is what they hold from now on
    std::vector<Checksum> checksums;  // of the data blocks once the write is done
    uint64_t sequence = 0;  // of its log entry; 0: it has none
    Status status;

    [[nodiscard]] const ArrayGroup& group() const { return *stripe->group; }
    [[nodiscard]] uint32_t data_columns() const { return situation.data_columns; }
    [[nodiscard]] uint32_t columns() const { return situation.data_columns + situation.parity; }
    [[nodiscard]] BlockPlace place(uint32_t column) const { return {stripe->key.stripe, column, row}; }
};

class PartialBatch {
public:
    PartialBatch(PartialWrites& partial, std::span<PendingStripe> stripes);
    ~PartialBatch();
    PartialBatch(const PartialBatch&) = delete;
    PartialBatch& operator=(const PartialBatch&) = delete;

    void run();

private:
    // acquire
    static std::vector<StripeKey> keys_of(std::span<const PendingStripe> stripes);
    void make_jobs();
    void make_jobs_of(PendingStripe& stripe);
    void add_job(PendingStripe& stripe, CachedStripe& cached, uint32_t row, std::span<PendingBlock> blocks);
    // whole rows need neither reads nor the log
    void write_full_rows();
    // gather (partial_read.cc)
    void ask_checksums();
    void choose_reads();
    void widen_reads();
    void read();
    void examine(RowJob& job, uint32_t column, const RowCell& cell);
    void solve();
    void solve(RowJob& job);
    static bool solve_columns(RowJob& job, std::span<const uint32_t> lost);
    static void adopt(RowJob& job, uint32_t column);
    [[nodiscard]] static bool in_use(const RowJob& job, uint32_t column);
    void count_faults(RowJob& job);
    // compute, log, write
    void write_some(std::span<RowJob*> jobs);
    bool log(std::span<RowJob*> jobs);
    Status append(std::span<RowJob*> jobs);
    static void give_up(RowJob& job);
    static void make_partials(RowJob& job, uint64_t age);
    static void apply(RowJob& job);
    void store(std::span<RowJob*> jobs);
    // release
    void record(const RowJob& job);
    void report(const RowJob& job);

    PartialWrites& partial_;
    ArrayState& state_;
    std::span<PendingStripe> stripes_;
    const std::vector<StripeKey> keys_;
    const StripeLockSet locks_;
    std::vector<CachedStripe*> pinned_;
    std::vector<RowJob> jobs_;
    std::vector<RowJob> full_;
};

}  // namespace cowraid
