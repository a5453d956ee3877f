// SPDX-License-Identifier: MIT
// A write in place, top to bottom: lock the stripes, gather what the rows hold, say in the log what will be,
// make parity, write, tell the checksums, let go. The reading is in partial_read.cc.
#include "raid56/partial_write.h"

#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "raid56/partial_batch.h"
#include "raid56/row_encoder.h"
#include "raid56/write_rows.h"

namespace cowraid {

PartialBatch::PartialBatch(PartialWrites& partial, std::span<PendingStripe> stripes)
    : partial_(partial),
      state_(partial.state),
      stripes_(stripes),
      keys_(keys_of(stripes)),
      locks_(partial.state.stripe_locks, keys_)
{
    make_jobs();
}

PartialBatch::~PartialBatch()
{
    for (CachedStripe* stripe : pinned_)
        partial_.cache.unpin(*stripe);
}

std::vector<StripeKey> PartialBatch::keys_of(std::span<const PendingStripe> stripes)
{
    std::vector<StripeKey> keys;
    for (const PendingStripe& stripe : stripes)
        keys.push_back(stripe.key);
    return keys;
}

void PartialBatch::make_jobs()
{
    for (PendingStripe& stripe : stripes_) {
        if (state_.missing_columns(*stripe.group) > stripe.group->tolerance) {
            for (PendingBlock& block : stripe.blocks)
                block.result = Err::kTooManyFaults;
            continue;
        }
        std::stable_sort(stripe.blocks.begin(), stripe.blocks.end(),
                         [](const PendingBlock& a, const PendingBlock& b) {
                             return a.row != b.row ? a.row < b.row : a.column < b.column;
                         });
        make_jobs_of(stripe);
    }
}

void PartialBatch::make_jobs_of(PendingStripe& stripe)
{
    const Geometry& geometry = stripe.group->geometry;
    CachedStripe& cached =
        partial_.cache.pin(stripe.key, stripe.group->record.mapping_version, geometry.rows());
    pinned_.push_back(&cached);
    const uint32_t granule =
        std::max<uint32_t>(1, std::min(geometry.chunk_bytes, partial_.stripe_io_bytes.load()) / kBlockBytes);
    uint32_t next_row = 0;
    const std::span<PendingBlock> blocks(stripe.blocks);
    for (size_t first = 0; first < blocks.size();) {
        size_t end = first;
        while (end < blocks.size() && blocks[end].row == blocks[first].row)
            ++end;
        const uint32_t row = blocks[first].row;
        for (uint32_t before = std::max(next_row, row / granule * granule); before < row; ++before)
            add_job(stripe, cached, before, {});
        add_job(stripe, cached, row, blocks.subspan(first, end - first));
        next_row = row + 1;
        first = end;
        const uint32_t granule_end = std::min(geometry.rows(), (row / granule + 1) * granule);
        const uint32_t until = end < blocks.size() ? std::min(blocks[end].row, granule_end) : granule_end;
        for (; next_row < until; ++next_row)
            add_job(stripe, cached, next_row, {});
    }
}

void PartialBatch::add_job(PendingStripe& stripe, CachedStripe& cached, uint32_t row,
                           std::span<PendingBlock> blocks)
{
    const ArrayGroup& group = *stripe.group;
    RowJob job;
    job.stripe = &stripe;
    job.row = row;
    job.blocks = blocks;
    job.situation.data_columns = group.geometry.data_columns;
    job.situation.parity = group.geometry.parity;
    for (const PendingBlock& block : blocks)
        job.situation.writes[block.column] = true;
    for (uint32_t column = 0; column < job.columns(); ++column)
        job.situation.away[column] = locate_block(state_, group, job.place(column), 0).device == nullptr;
    if (job.situation.writes.count() == job.data_columns()) {
        full_.push_back(std::move(job));
        return;
    }
    if (!cached.rows[row])
        cached.rows[row] = std::make_unique<CachedRow>(job.data_columns(), job.situation.parity);
    job.cached = cached.rows[row].get();
    jobs_.push_back(std::move(job));
}

// Rows of which every data block is new: nothing in them is to be kept.
void PartialBatch::write_full_rows()
{
    if (full_.empty())
        return;
    std::vector<std::vector<const std::byte*>> blocks(full_.size());
    std::vector<RowWrite> writes;
    for (size_t index = 0; index < full_.size(); ++index) {
        const RowJob& job = full_[index];
        blocks[index].resize(job.data_columns());
        for (const PendingBlock& block : job.blocks)
            blocks[index][block.column] = block.memory;
        writes.push_back({
            .group_address = job.stripe->key.group,
            .first_stripe = job.stripe->key.stripe,
            .first_row = job.row,
            .row_count = 1,
            .blocks = blocks[index],
            .sink = job.stripe->origin.sink,
        });
    }
    bump(partial_.counters.full_rows, full_.size());
    write_locked_rows(state_, writes).ignore();  // each has its own result
    for (size_t index = 0; index < full_.size(); ++index) {
        full_[index].status = writes[index].result;
        report(full_[index]);
    }
}

// What the row's entry must carry: parity of all blocks but those written since the members were flushed.
void PartialBatch::make_partials(RowJob& job, uint64_t age)
{
    CachedRow& cached = *job.cached;
    const uint32_t k = job.data_columns();
    const bool live = cached.live_age == age;
    const RowBits before = live ? cached.written : RowBits();
    cached.written = before | job.situation.writes;
    cached.live_age = age;
    std::vector<std::byte*> partials;
    for (uint32_t parity = 0; parity < job.situation.parity; ++parity)
        partials.push_back(cached.partial(parity));
    if (job.plan.mode == RowMode::kReconstruct) {
        std::vector<const std::byte*> data;
        for (uint32_t column = 0; column < k; ++column)
            data.push_back(cached.written[column] ? pad_block(0) : cached.block(column));
        parity_generate(data, partials, kBlockBytes);
        return;
    }
    for (uint32_t parity = 0; parity < partials.size() && !live; ++parity)
        std::memcpy(partials[parity], cached.block(k + parity), kBlockBytes);
    for (uint32_t column = 0; column < k; ++column)
        if (cached.written[column] && !before[column])
            parity_add(column, cached.block(column), partials, kBlockBytes);
}

// The new content into the row, and its parity.
void PartialBatch::apply(RowJob& job)
{
    CachedRow& cached = *job.cached;
    const uint32_t k = job.data_columns();
    std::vector<std::byte*> parity;
    for (uint32_t column = k; column < job.columns(); ++column)
        parity.push_back(cached.block(column));
    const bool modify = job.plan.mode == RowMode::kModify;
    for (uint32_t column = 0; modify && column < k; ++column)
        if (job.situation.writes[column])
            parity_add(column, cached.block(column), parity, kBlockBytes);
    for (const PendingBlock& block : job.blocks)
        std::memcpy(cached.block(block.column), block.memory, kBlockBytes);
    std::vector<const std::byte*> data;
    for (uint32_t column = 0; column < k; ++column) {
        data.push_back(cached.block(column));
        if (modify && job.situation.writes[column])
            parity_add(column, cached.block(column), parity, kBlockBytes);
    }
    if (!modify)
        parity_generate(data, parity, kBlockBytes);
    std::copy(job.checksums.begin(), job.checksums.end(), cached.checksums.begin());
    // Of a parity block that could not be updated all that is known is that it is nothing it ever was.
    const Checksum unknown = checksum_of(std::as_bytes(std::span(cached.checksums)));
    cached.present |= job.situation.writes;
    for (uint32_t column = k; column < job.columns(); ++column) {
        const bool known = !modify || !job.situation.away[column];
        cached.present[column] = known;
        cached.checksums[column] = known ? checksum_of(parity[column - k], kBlockBytes) : unknown + column;
    }
}

// Every parity column has the entry, but those that the map calls stale: recovery rests on that (I-32).
Status PartialBatch::append(std::span<RowJob*> jobs)
{
    std::vector<RowIntent> intents;
    std::vector<std::vector<RowIntent::Copy>> copies(jobs.size());
    std::vector<RowJob*> logged;
    for (size_t index = 0; index < jobs.size(); ++index) {
        RowJob& job = *jobs[index];
        const uint32_t k = job.data_columns();
        for (uint32_t parity = 0; parity < job.situation.parity; ++parity) {
            const BlockLocation at = locate_block(state_, job.group(), job.place(k + parity), 0);
            if (at.device != nullptr)
                copies[index].push_back({at.member, parity, job.cached->partial(parity)});
            else if (!at.stale)
                return Err::kNoSpace;
        }
        // Without parity in service nothing in the row depends on anything else.
        if (copies[index].empty())
            continue;
        RowIntent intent;
        intent.row = address_of(job.group(), job.place(0));
        intent.mapping_version = job.group().record.mapping_version;
        intent.checksums = job.checksums;
        for (uint32_t column = 0; column < k; ++column)
            intent.modified[column] = job.cached->written[column];
        intent.copies = copies[index];
        intents.push_back(intent);
        logged.push_back(&job);
    }
    if (intents.empty())
        return {};
    const WriteOrigin& origin = stripes_.front().origin;
    CW_TRY(partial_.log.append(intents, origin.generation, origin.epoch));
    for (size_t index = 0; index < logged.size(); ++index) {
        logged[index]->sequence = intents[index].sequence;
        bump(partial_.counters.log_bytes, (intents[index].copies.size()) * kBlockBytes);
    }
    bump(partial_.counters.log_batches, 1);
    return {};
}

// Makes the entries durable. Ends inside the barrier, or, when false, outside. A full log fails the rows, and
// so does a member that failed since the last commit: only a commit makes room, with the checksums of the
// rows that the log names (I-23), or records the failure, and that is the writer's to ask for.
bool PartialBatch::log(std::span<RowJob*> jobs)
{
    if (partial_.cache.crowded())
        partial_.flush_all().ignore();  // members that failed are out of service, as after any write
    for (;;) {
        partial_.barrier.enter();
        for (RowJob* job : jobs)
            make_partials(*job, partial_.cache.age());
        const Status logged = append(jobs);
        if (logged.ok())
            return true;
        partial_.barrier.leave();
        // Members that failed meanwhile are out of service.
        if (logged == Status(Err::kIo))
            continue;
        for (RowJob* job : jobs) {
            job->status = state_.members.stopped() ? Err::kTooManyFaults : logged;
            give_up(*job);
        }
        return false;
    }
}

// What the cache says of the row goes beyond what the members hold; what its entries say goes on.
void PartialBatch::give_up(RowJob& job)
{
    job.cached->present.reset();
    job.cached->checksums_known = false;
}

void PartialBatch::store(std::span<RowJob*> jobs)
{
    IoPlan plan(IoKind::kWrite, state_.members);
    for (uint32_t index = 0; index < jobs.size(); ++index) {
        RowJob& job = *jobs[index];
        for (uint32_t column = 0; column < job.columns(); ++column) {
            if (column < job.data_columns() && !job.situation.writes[column] && !job.rewrite[column])
                continue;
            const BlockLocation at = locate_block(state_, job.group(), job.place(column), 0);
            if (at.device != nullptr)
                plan.add(
                    {at.member, at.device, at.offset, job.cached->block(column), kBlockBytes, index, {}});
        }
    }
    plan.run();
    std::vector<MemberId> lost;
    uint64_t written = 0;
    for (const IoPart& part : plan.parts()) {
        if (part.result.ok())
            written += part.bytes;
        else
            lost.push_back(part.member);
    }
    bump(state_.counters.member_bytes_written, written);
    const bool carried = state_.members.fail(lost);
    for (RowJob* job : jobs)
        if (!carried)
            job->status = Err::kTooManyFaults;
}

void PartialBatch::record(const RowJob& job)
{
    CachedRow& cached = *job.cached;
    for (uint32_t column = 0; column < job.columns(); ++column)
        if (column >= job.data_columns() || job.situation.writes[column] || job.adopted[column])
            job.stripe->origin.sink->record(address_of(job.group(), job.place(column)),
                                            std::span(cached.checksums).subspan(column, 1));
    for (uint32_t column = 0; column < job.data_columns(); ++column) {
        if (!job.rewrite[column] || !job.charged[column])
            continue;
        state_.members.count(locate_block(state_, job.group(), job.place(column), 0).member,
                             MemberCounter::kRepaired);
        bump(state_.counters.blocks_repaired, 1);
    }
    bump(partial_.counters.rows, 1);
    bump(job.plan.mode == RowMode::kModify ? partial_.counters.rmw_rows : partial_.counters.rcw_rows, 1);
    bump(state_.counters.data_bytes_written, job.situation.writes.count() * kBlockBytes);
}

void PartialBatch::report(const RowJob& job)
{
    for (PendingBlock& block : job.blocks)
        block.result = job.status;
}

void PartialBatch::write_some(std::span<RowJob*> jobs)
{
    for (RowJob* job : jobs) {
        const std::vector<Checksum>& before = job->cached->checksums;
        job->checksums.assign(before.begin(), before.begin() + job->data_columns());
        for (const PendingBlock& block : job->blocks)
            job->checksums[block.column] = checksum_of(block.memory, kBlockBytes);
    }
    if (!log(jobs))
        return;
    for (RowJob* job : jobs)
        apply(*job);
    store(jobs);
    for (const RowJob* job : jobs)
        if (job->sequence != 0)
            partial_.log.written(job->sequence);
    partial_.barrier.leave();
    for (RowJob* job : jobs) {
        if (job->status.ok()) {
            record(*job);
            continue;
        }
        give_up(*job);
    }
}

void PartialBatch::run()
{
    write_full_rows();
    ask_checksums();
    choose_reads();
    widen_reads();
    read();
    solve();
    std::vector<RowJob*> ready;
    for (RowJob& job : jobs_)
        if (job.status.ok() && !job.blocks.empty())
            ready.push_back(&job);
    const size_t at_once = partial_.log.batch_rows();
    for (size_t first = 0; first < ready.size(); first += at_once)
        write_some(std::span(ready).subspan(first, std::min(at_once, ready.size() - first)));
    for (const RowJob& job : jobs_)
        report(job);
}

void write_stripes_in_place(PartialWrites& partial, std::span<PendingStripe> stripes)
{
    PartialBatch(partial, stripes).run();
}

}  // namespace cowraid
