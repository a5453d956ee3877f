// SPDX-License-Identifier: MIT
// Writes of whole rows: cut into units, encode, write all units of a batch at once, settle who failed.
#include "raid56/write_rows.h"

#include <algorithm>
#include <cstring>

#include "raid56/io_plan.h"
#include "raid56/partial_write.h"
#include "raid56/row_encoder.h"

namespace cowraid {

namespace {

// Data encoded and written at a time: bounds the memory for parity (to this times m / k, and one stripe),
// yet a member's share of it is megabytes.
constexpr uint64_t kBatchBytes = 32 * kMiB;

class WriteCall {
public:
    // `locked`: the caller holds the locks of all stripes.
    WriteCall(ArrayState& state, std::span<RowWrite> writes, bool locked)
        : state_(state),
          writes_(writes),
          locked_(locked),
          list_(state.groups.list()),
          incomplete_(writes.size())
    {
    }
    Status run();

private:
    [[nodiscard]] Status admit(const RowWrite& write, const ArrayGroup* group) const;
    void take(uint32_t index);
    void flush_batch();
    uint64_t encode();
    [[nodiscard]] std::vector<StripeKey> stripes() const;
    void plan_unit(IoPlan& plan, uint32_t index);
    void plan_stripe(IoPlan& plan, const WriteUnit& unit, uint32_t column, uint64_t stripe);
    void write(IoPlan& plan);
    void record(const WriteUnit& unit);
    void refresh_cache(const WriteUnit& unit, bool stored);
    void note_results(IoPlan& plan);
    void settle();

    ArrayState& state_;
    std::span<RowWrite> writes_;
    const bool locked_;
    Ref<const GroupList> list_;  // keeps the groups alive
    std::vector<WriteUnit> batch_;
    uint64_t batch_bytes_ = 0;
    std::vector<Checksum> checksums_;  // of the batch
    std::vector<MemberId> lost_;  // members some request of which failed
    std::vector<bool> incomplete_;  // per write: some request of it failed
};

Status WriteCall::admit(const RowWrite& write, const ArrayGroup* group) const
{
    if (state_.read_only.load(std::memory_order_acquire))
        return Err::kReadOnly;
    if (group == nullptr || group->record.address != write.group_address)
        return Err::kInvalid;
    const Geometry& geometry = group->geometry;
    if (write.row_count == 0 || write.first_row >= geometry.rows() ||
        write.row_count > geometry.rows() - write.first_row)
        return Err::kInvalid;
    if (write.stripe_count == 0 || write.first_stripe >= geometry.stripe_count() ||
        write.stripe_count > geometry.stripe_count() - write.first_stripe)
        return Err::kInvalid;
    if (write.stripe_count > 1 && write.row_count != geometry.rows())
        return Err::kInvalid;
    const uint64_t rows = write.stripe_count * write.row_count;
    CW_ASSERT(write.blocks.size() == rows * geometry.data_columns);
    return state_.missing_columns(*group) > group->tolerance ? Err::kTooManyFaults : Err::kOk;
}

// Adds a write to the batch, cut at stripes where it would make the batch too large.
void WriteCall::take(uint32_t index)
{
    RowWrite& write = writes_[index];
    const ArrayGroup* group = list_->find(write.group_address);
    write.result = admit(write, group);
    if (!write.result.ok())
        return;
    const Geometry& geometry = group->geometry;
    const uint64_t stripe_blocks = uint64_t{write.row_count} * geometry.data_columns;
    for (uint64_t done = 0; done < write.stripe_count;) {
        const uint64_t stripe_bytes = stripe_blocks * kBlockBytes;
        const uint64_t room = batch_bytes_ < kBatchBytes ? (kBatchBytes - batch_bytes_) / stripe_bytes : 0;
        if (room == 0 && !batch_.empty()) {
            flush_batch();
            continue;
        }
        const uint64_t count = std::min(std::max<uint64_t>(room, 1), write.stripe_count - done);
        batch_.push_back({
            .group = group,
            .write = index,
            .first_stripe = write.first_stripe + done,
            .stripe_count = count,
            .first_row = write.first_row,
            .row_count = write.row_count,
            .blocks = write.blocks.subspan(done * stripe_blocks, count * stripe_blocks),
        });
        batch_bytes_ += batch_.back().data_bytes();
        done += count;
    }
}

uint64_t WriteCall::encode()
{
    uint64_t data_bytes = 0;
    for (const WriteUnit& unit : batch_) {
        const uint64_t pads = encode_rows(unit);
        bump(state_.counters.pad_blocks, pads);
        data_bytes += unit.data_bytes() - pads * kBlockBytes;
        if (unit.row_count == unit.group->geometry.rows())
            bump(state_.counters.full_stripes, unit.stripe_count);
        else
            bump(state_.counters.full_rows, unit.row_count);
    }
    return data_bytes;
}

std::vector<StripeKey> WriteCall::stripes() const
{
    std::vector<StripeKey> keys;
    for (const WriteUnit& unit : batch_)
        for (uint64_t stripe = 0; stripe < unit.stripe_count; ++stripe)
            keys.push_back({unit.group->record.address, unit.first_stripe + stripe});
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    return keys;
}

// The share of one group column in one stripe of its set.
void WriteCall::plan_stripe(IoPlan& plan, const WriteUnit& unit, uint32_t column, uint64_t stripe)
{
    const ArrayGroup& group = *unit.group;
    const Geometry& geometry = group.geometry;
    const uint64_t stripe_number = unit.first_stripe + stripe;
    // The inverse of group_column().
    const uint32_t columns = geometry.columns();
    const auto turned = static_cast<uint32_t>(
        (column % columns + columns - geometry.turn_of(stripe_number) % columns) % columns);
    const uint32_t logical = turned / geometry.copies;
    const MemberId member = group.record.columns[column].member;
    BlockDevice* device = state_.members.device(member);
    if (device == nullptr)
        return;
    const uint64_t offset = column_offset(geometry, {stripe_number, logical, unit.first_row});
    const DeviceOffset start = group.locate(column, offset).offset;
    for (uint32_t row = 0; row < unit.row_count; ++row)
        plan.add({member,
                  device,
                  start + uint64_t{row} * kBlockBytes,
                  const_cast<std::byte*>(unit.block(stripe, logical, row)),
                  kBlockBytes,
                  unit.write,
                  {}});
}

// Column by column, so that the parts of a member come in order.
void WriteCall::plan_unit(IoPlan& plan, uint32_t index)
{
    const WriteUnit& unit = batch_[index];
    const Geometry& geometry = unit.group->geometry;
    for (uint32_t column = 0; column < unit.group->record.columns.size(); ++column) {
        const uint32_t set = column / geometry.columns();
        uint64_t stripe = (set + geometry.sets - geometry.set_of(unit.first_stripe)) % geometry.sets;
        for (; stripe < unit.stripe_count; stripe += geometry.sets)
            plan_stripe(plan, unit, column, stripe);
    }
}

void WriteCall::note_results(IoPlan& plan)
{
    uint64_t written = 0;
    for (const IoPart& part : plan.parts()) {
        if (part.result.ok()) {
            written += part.bytes;
            continue;
        }
        lost_.push_back(part.member);
        incomplete_[part.owner] = true;
    }
    bump(state_.counters.member_bytes_written, written);
}

// Rows that are not full are likely to be written again, block by block: they stay in the cache.
void WriteCall::refresh_cache(const WriteUnit& unit, bool stored)
{
    const Geometry& geometry = unit.group->geometry;
    const uint32_t columns = geometry.data_columns + geometry.parity;
    StripeCache& cache = state_.partial->cache;
    for (uint64_t stripe = 0; stripe < unit.stripe_count; ++stripe) {
        const StripeKey key{unit.group->record.address, unit.first_stripe + stripe};
        cache.forget(key, unit.first_row, unit.row_count);
        for (uint32_t row = 0; stored && row < unit.row_count; ++row) {
            if (unit.blocks[(stripe * geometry.data_columns + geometry.data_columns - 1) * unit.row_count +
                            row] != nullptr)
                continue;
            CachedStripe& cached = cache.pin(key, unit.group->record.mapping_version, geometry.rows());
            auto content = std::make_unique<CachedRow>(geometry.data_columns, geometry.parity);
            for (uint32_t column = 0; column < columns; ++column) {
                std::memcpy(content->block(column), unit.block(stripe, column, row), kBlockBytes);
                content->checksums[column] =
                    unit.checksums[(stripe * columns + column) * unit.row_count + row];
                content->present[column] = true;
            }
            content->checksums_known = true;
            cached.rows[unit.first_row + row] = std::move(content);
            cache.unpin(cached);
        }
    }
}

// Before the stripes are let go: who reads them next, and asks the verifier, sees one truth (I-22).
void WriteCall::record(const WriteUnit& unit)
{
    ChecksumSink* sink = writes_[unit.write].sink;
    if (sink == nullptr)
        return;
    const ArrayGroup& group = *unit.group;
    const uint32_t columns = group.geometry.data_columns + group.geometry.parity;
    for (uint64_t stripe = 0; stripe < unit.stripe_count; ++stripe)
        for (uint32_t column = 0; column < columns; ++column)
            sink->record(
                address_of(group, {unit.first_stripe + stripe, column, unit.first_row}),
                unit.checksums.subspan((stripe * columns + column) * unit.row_count, unit.row_count));
}

void WriteCall::write(IoPlan& plan)
{
    plan.run();
    for (const WriteUnit& unit : batch_)
        record(unit);
    const bool stored = std::all_of(plan.parts().begin(), plan.parts().end(),
                                    [](const IoPart& part) { return part.result.ok(); });
    for (const WriteUnit& unit : batch_)
        if (state_.partial && unit.group->geometry.parity > 0)
            refresh_cache(unit, stored);
}

void WriteCall::flush_batch()
{
    uint64_t parity_bytes = 0;
    uint64_t checksum_count = 0;
    for (const WriteUnit& unit : batch_) {
        parity_bytes += unit.parity_bytes();
        checksum_count += unit.checksum_count();
    }
    checksums_.resize(checksum_count);
    std::span<Checksum> sums = checksums_;
    BufferPool::Loan parity(state_.buffers, parity_bytes);
    std::byte* next = parity.data();
    for (WriteUnit& unit : batch_) {
        unit.parity = next;
        next += unit.parity_bytes();
        unit.checksums = sums.first(unit.checksum_count());
        sums = sums.subspan(unit.checksum_count());
    }
    const uint64_t data_bytes = encode();
    IoPlan plan(IoKind::kWrite, state_.members);
    for (uint32_t i = 0; i < batch_.size(); ++i)
        plan_unit(plan, i);
    if (locked_) {
        write(plan);
    } else {
        const std::vector<StripeKey> keys = stripes();
        const StripeLockSet lock(state_.stripe_locks, keys);
        write(plan);
    }
    bump(state_.counters.data_bytes_written, data_bytes);
    note_results(plan);
    batch_.clear();
    batch_bytes_ = 0;
}

// A write is good while redundancy carries the members it missed; those are then out of service, so that
// nobody takes their old content for the new (I-5).
void WriteCall::settle()
{
    if (state_.members.fail(lost_))
        return;
    for (uint32_t i = 0; i < writes_.size(); ++i)
        if (incomplete_[i])
            writes_[i].result = Err::kTooManyFaults;
}

Status WriteCall::run()
{
    for (uint32_t i = 0; i < writes_.size(); ++i)
        take(i);
    if (!batch_.empty())
        flush_batch();
    settle();
    for (const RowWrite& write : writes_)
        if (!write.result.ok())
            return write.result;
    return {};
}

}  // namespace

Status Array::write_rows(std::span<RowWrite> writes)
{
    return WriteCall(*state_, writes, false).run();
}

Status write_locked_rows(ArrayState& state, std::span<RowWrite> writes)
{
    return WriteCall(state, writes, true).run();
}

}  // namespace cowraid
