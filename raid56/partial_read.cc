// SPDX-License-Identifier: MIT
// The reading half of a write in place. Nothing that was not verified goes on: what the write leaves alone
// and fails its checksum or cannot be read is solved from the rest of the row, and stored again. What the
// write replaces, and parity, need not be had for that: they are made anew.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/checksum.h"
#include "raid56/expectations.h"
#include "raid56/partial_batch.h"

namespace cowraid {

// What the members must hold. Asked under the stripes' locks: an answer from before may be older than the
// write that had the lock last. The verifier reads mirrored groups only, so that nobody waits in a circle.
void PartialBatch::ask_checksums()
{
    struct Answer {
        RowJob* job;
        std::vector<BlockExpectation> columns;
    };
    std::vector<Answer> answers;
    for (RowJob& job : jobs_)
        if (!job.cached->checksums_known)
            answers.push_back({&job, std::vector<BlockExpectation>(job.columns())});
    Expectations expectations;
    for (Answer& answer : answers)
        for (uint32_t column = 0; column < answer.columns.size(); ++column)
            expectations.add(answer.job->group(), answer.job->place(column), &answer.columns[column]);
    expectations.ask(state_.verifier.load(std::memory_order_acquire));
    for (const Answer& answer : answers) {
        CachedRow& cached = *answer.job->cached;
        cached.checksums_known = true;
        for (uint32_t column = 0; column < answer.columns.size(); ++column) {
            cached.checksums[column] = answer.columns[column].checksum;
            cached.checksums_known = cached.checksums_known && answer.columns[column].known;
        }
        // Never written as a whole, or nobody can say what it holds.
        if (!cached.checksums_known)
            answer.job->status = Err::kTooManyFaults;
    }
}

void PartialBatch::choose_reads()
{
    const RmwLevel level = partial_.rmw_level.load(std::memory_order_relaxed);
    for (RowJob& job : jobs_) {
        if (!job.status.ok() || job.blocks.empty())
            continue;
        job.situation.present = job.cached->present;
        job.plan = plan_row(job.situation, level);
        RowSituation cold = job.situation;
        cold.present.reset();
        const uint64_t needed = plan_row(cold, level).reads.count();
        const uint64_t missed = job.plan.reads.count();
        bump(partial_.counters.cache_misses, missed);
        bump(partial_.counters.cache_hits, needed > missed ? needed - missed : 0);
    }
}

// Rounds reads to stripe_io_bytes: the same columns of the neighbouring rows are read along.
void PartialBatch::widen_reads()
{
    const uint32_t granule = partial_.stripe_io_bytes.load(std::memory_order_relaxed) / kBlockBytes;
    if (granule <= 1)
        return;
    const auto granule_of = [=](const RowJob& job) {
        return std::pair(job.stripe, job.row / granule);
    };
    for (size_t first = 0; first < jobs_.size();) {
        size_t end = first;
        RowBits wanted;
        for (; end < jobs_.size() && granule_of(jobs_[end]) == granule_of(jobs_[first]); ++end)
            wanted |= jobs_[end].plan.reads;
        for (; first < end; ++first)
            if (jobs_[first].status.ok())
                jobs_[first].plan.reads |=
                    wanted & ~jobs_[first].cached->present & ~jobs_[first].situation.away;
    }
}

void PartialBatch::examine(RowJob& job, uint32_t column, const RowCell& cell)
{
    job.cached->present[column] = cell.state == RowCell::State::kGood;
    // Of a row read along, whoever needs the block will find out.
    if (job.cached->present[column] || job.blocks.empty())
        return;
    const bool away = cell.state == RowCell::State::kAway;
    const bool unread = !away && cell.cause == FaultCause::kReadError;
    (away ? job.situation.away : job.bad)[column] = true;
    job.unread[column] = unread;
    job.charged[column] = unread;
    if (unread)
        count_fault(state_, job.group(), job.place(column), 0, cell.cause);
}

// Reads what the plans say, all rows as one batch.
void PartialBatch::read()
{
    struct Read {
        RowJob* job;
        uint32_t column;
        RowCell cell;
    };
    std::vector<Read> reads;
    for (RowJob& job : jobs_)
        for (uint32_t column = 0; job.status.ok() && column < job.columns(); ++column)
            if (job.plan.reads[column] && !job.cached->present[column])
                reads.push_back({&job,
                                 column,
                                 {.memory = job.cached->block(column),
                                  .expected = {true, job.cached->checksums[column]}}});
    std::vector<PlacedCell> cells;
    cells.reserve(reads.size());
    for (Read& at : reads)
        cells.push_back({&at.job->group(), at.job->place(at.column), 0, &at.cell});
    read_cells(state_, cells);
    classify_cells(cells);
    for (const Read& at : reads)
        examine(*at.job, at.column, at.cell);
    bump(partial_.counters.blocks_read,
         static_cast<uint64_t>(std::count_if(reads.begin(), reads.end(), [](const Read& at) {
             return at.cell.state != RowCell::State::kAway;
         })));
}

// Rows of which something was bad or away: all the rest is read, and what is missing computed.
void PartialBatch::solve()
{
    bool any = false;
    for (RowJob& job : jobs_) {
        const bool incomplete = (job.plan.reads & ~job.cached->present).any();
        job.plan.reads.reset();
        if (!job.status.ok() || job.blocks.empty() || (!incomplete && job.plan.mode != RowMode::kSolve))
            continue;
        any = true;
        job.plan.mode = RowMode::kSolve;
        for (uint32_t column = 0; column < job.columns(); ++column)
            job.plan.reads[column] = !job.situation.away[column] && !job.bad[column];
    }
    if (!any)
        return;
    read();
    for (RowJob& job : jobs_)
        if (job.status.ok() && job.plan.mode == RowMode::kSolve)
            solve(job);
}

bool PartialBatch::in_use(const RowJob& job, uint32_t column)
{
    return job.stripe->origin.sink->in_use(address_of(job.group(), job.place(column)));
}

// What was solved is known to have been wrong; free blocks, and stale columns, are charged to nobody.
void PartialBatch::count_faults(RowJob& job)
{
    for (uint32_t column = 0; column < job.columns(); ++column) {
        const bool parity = column >= job.data_columns();
        const bool wrong = job.bad[column] && !job.charged[column] && !job.situation.writes[column];
        if (!wrong || job.adopted[column] || locate_block(state_, job.group(), job.place(column), 0).stale ||
            (!parity && !in_use(job, column)))
            continue;
        job.charged[column] = count_fault(state_, job.group(), job.place(column), 0, FaultCause::kWrong);
    }
}

// Solves the `lost` columns as a reader does, and takes those that match. Bad blocks are only inputs as a
// last resort, lost ones never. True: all matched.
bool PartialBatch::solve_columns(RowJob& job, std::span<const uint32_t> lost)
{
    CachedRow& cached = *job.cached;
    std::vector<RowCell> cells(job.columns());
    for (uint32_t column = 0; column < cells.size(); ++column) {
        cells[column].memory = cached.block(column);
        cells[column].cause = job.unread[column] ? FaultCause::kReadError : FaultCause::kWrong;
        if (cached.present[column])
            cells[column].state = RowCell::State::kGood;
        else
            cells[column].state = job.bad[column] ? RowCell::State::kBad : RowCell::State::kAway;
    }
    // Apart from what was read, which another choice of inputs may need.
    AlignedBuffer solved(lost.size() * kBlockBytes);
    std::vector<LostBlock> blocks;
    for (const uint32_t column : lost)
        blocks.push_back({.group = &job.group(),
                          .place = job.place(column),
                          .memory = solved.data() + blocks.size() * kBlockBytes,
                          .wanted = cached.checksums[column]});
    Row row{&job.group(), job.stripe->key.stripe, job.row, cells, blocks};
    std::vector<RepairItem> repairs;  // the write itself stores what was solved
    solve_row(row, repairs);
    for (const LostBlock& block : blocks) {
        if (!block.recovered)
            continue;
        std::memcpy(cached.block(block.place.column), block.memory, kBlockBytes);
        cached.present[block.place.column] = true;
    }
    return row.done;
}

// Nobody needs what a free block holds, only that parity and checksum agree with it: what a crash left there,
// or zeros where it cannot be had. It is stored again: its member may be in service, and a crash may have
// left something else on that one's successor.
void PartialBatch::adopt(RowJob& job, uint32_t column)
{
    CachedRow& cached = *job.cached;
    if (!job.bad[column] || job.unread[column])
        std::memset(cached.block(column), 0, kBlockBytes);
    job.rewrite[column] = true;
    cached.checksums[column] = checksum_of(cached.block(column), kBlockBytes);
    cached.present[column] = true;
    job.adopted[column] = true;
}

// A row of which not all can be had as it must be. Needed are the blocks that the write leaves alone.
void PartialBatch::solve(RowJob& job)
{
    CachedRow& cached = *job.cached;
    std::vector<uint32_t> needed, used;
    for (uint32_t column = 0; column < job.data_columns(); ++column)
        if (!cached.present[column] && !job.situation.writes[column])
            needed.push_back(column);
    job.plan.mode = RowMode::kReconstruct;
    if (!needed.empty() && !solve_columns(job, needed)) {
        std::copy_if(needed.begin(), needed.end(), std::back_inserter(used),
                     [&](uint32_t column) { return !cached.present[column] && in_use(job, column); });
        // What free blocks hold may be an input then.
        if (!used.empty() && !solve_columns(job, used)) {
            job.status = Err::kTooManyFaults;
            return;
        }
        for (const uint32_t column : needed)
            if (!cached.present[column])
                adopt(job, column);
    }
    for (const uint32_t column : needed)
        job.rewrite[column] = job.rewrite[column] || (job.bad[column] && !job.adopted[column]);
    count_faults(job);
    if (job.bad.any())
        bump(partial_.counters.repaired_rows, 1);
}

}  // namespace cowraid
