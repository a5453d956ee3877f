// SPDX-License-Identifier: MIT
// The array's public face. Each operation is in a file of its own: read.cc, write_rows.cc, check.cc.
#include "raid56/array.h"

#include <algorithm>

#include "base/log.h"
#include "raid56/array_state.h"
#include "raid56/check.h"
#include "raid56/partial_write.h"
#include "raid56/read.h"
#include "raid56/recover_rows.h"
#include "raid56/write_rows.h"

namespace cowraid {

ArrayState::ArrayState(MemberSet& member_set) : members(member_set)
{
    members.set_judge(this);
}

ArrayState::~ArrayState()
{
    members.set_judge(nullptr);
}

Ref<RecoveredRows> ArrayState::recovered_rows()
{
    MutexLock lock(recovered_mutex);
    return recovered;
}

uint32_t ArrayState::missing_columns(const ArrayGroup& group) const
{
    uint32_t missing = 0;
    for (const GroupColumn& column : group.record.columns)
        missing += column.stale() || members.device(column.member) == nullptr;
    return missing;
}

namespace {

// Whether the group would lose data without `ids`, which it does not lose yet.
bool depends_on(const ArrayState& state, const ArrayGroup& group, std::span<const MemberId> ids)
{
    uint32_t leaving = 0;
    for (const GroupColumn& column : group.record.columns)
        leaving += std::find(ids.begin(), ids.end(), column.member) != ids.end() && !column.stale() &&
                   state.members.device(column.member) != nullptr;
    return leaving > 0 && state.missing_columns(group) + leaving > group.tolerance;
}

}  // namespace

bool ArrayState::can_do_without(std::span<const MemberId> leaving) const
{
    const Ref<const GroupList> list = groups.list();
    return std::none_of(list->groups.begin(), list->groups.end(), [&](const Ref<const ArrayGroup>& group) {
        return depends_on(*this, *group, leaving);
    });
}

BlockLocation locate_block(const ArrayState& state, const ArrayGroup& group, const BlockPlace& place,
                           uint32_t copy)
{
    const uint32_t column = group_column(group.geometry, place.stripe, place.column, copy);
    const GroupColumn& record = group.record.columns[column];
    return {record.member, state.members.device(record.member),
            group.locate(column, column_offset(group.geometry, place)).offset, record.stale()};
}

Array::Array(MemberSet& members, const Options& options) : state_(std::make_unique<ArrayState>(members))
{
    set_read_only(options.read_only);
}

Array::~Array() = default;

void Array::set_verifier(BlockVerifier* verifier)
{
    state_->verifier.store(verifier, std::memory_order_release);
}

void Array::set_read_only(bool read_only)
{
    state_->read_only.store(read_only, std::memory_order_release);
}

Status Array::add_group(const GroupRecord& record, const Superblock& superblock)
{
    CW_ASSIGN(Ref<const ArrayGroup> group, make_array_group(record, superblock));
    return state_->groups.add(std::move(group));
}

void Array::remove_group(VolumeAddress address)
{
    state_->groups.remove(address);
}

Ref<const ArrayGroup> Array::group_at(VolumeAddress address) const
{
    return Ref<const ArrayGroup>(state_->groups.list()->find(address));
}

std::vector<Ref<const ArrayGroup>> Array::groups() const
{
    return state_->groups.list()->groups;
}

Status Array::update_groups(std::span<const GroupRecord> records, const Superblock& superblock)
{
    std::vector<Ref<const ArrayGroup>> groups;
    for (const GroupRecord& record : records) {
        CW_ASSIGN(Ref<const ArrayGroup> group, make_array_group(record, superblock));
        groups.push_back(std::move(group));
    }
    state_->groups.replace(groups);
    return {};
}

uint32_t Array::absent_columns(const ArrayGroup& group) const
{
    uint32_t absent = 0;
    for (const GroupColumn& column : group.record.columns)
        absent += state_->members.device(column.member) == nullptr;
    return absent;
}

uint32_t Array::missing_columns(const ArrayGroup& group) const
{
    return state_->missing_columns(group);
}

Status Array::read(std::span<ReadPiece> pieces)
{
    return read_pieces(*state_, pieces);
}

Status Array::write_rows(std::span<RowWrite> writes)
{
    return write_rows_to(*state_, writes);
}

Status Array::recover_rows(IntentScan& scan, ChecksumSink& sink, RecoveryCounts& counts)
{
    return recover_logged_rows(*state_, scan, sink, counts);
}

Status Array::start_partial_writes(IntentLog& log, const PartialWriteOptions& options)
{
    CW_ASSERT(!state_->partial);
    CW_TRY(check_options(options));
    state_->partial = std::make_unique<PartialWrites>(*state_, log, options);
    return {};
}

PartialWriteOptions Array::partial_write_options() const
{
    return state_->partial ? state_->partial->options() : PartialWriteOptions{};
}

Status Array::set_partial_write_options(const PartialWriteOptions& options)
{
    CW_TRY(check_options(options));
    if (!state_->partial)
        return Err::kInvalid;
    state_->partial->set_options(options);
    return {};
}

Status Array::write_blocks(std::span<BlockWrite> writes, const WriteOrigin& origin)
{
    WriteRequest request;
    request.writes = writes;
    request.origin = origin;
    submit(request);
    return wait(request);
}

void Array::submit(WriteRequest& request)
{
    state_->partial->plug.submit(request);
}

Status Array::wait(WriteRequest& request)
{
    return state_->partial->plug.wait(request);
}

PartialWriteStatistics Array::partial_write_statistics() const
{
    return state_->partial ? state_->partial->statistics() : PartialWriteStatistics{};
}

Array::FlushBarrier::FlushBarrier(Array& array)
    : covered(array.state_->partial ? array.state_->partial->begin_flush() : 0), state_(*array.state_)
{
}

Array::FlushBarrier::~FlushBarrier()
{
    if (state_.partial)
        state_.partial->barrier.open();
}

void Array::FlushBarrier::flushed()
{
    if (state_.partial)
        state_.partial->cache.end_age();
}

void Array::retire(uint64_t covered)
{
    if (state_->partial)
        state_->partial->log.retire(covered);
}

Status Array::check_stripes(VolumeAddress group_address, uint64_t first_stripe, uint64_t stripe_count,
                            std::vector<BadBlock>& found)
{
    return check_stripes_of(*state_, group_address, first_stripe, stripe_count, found);
}

Status Array::check_copies(VolumeAddress address, std::span<const Checksum> checksums,
                           std::vector<BadBlock>& found)
{
    return check_copies_of(*state_, address, checksums, found);
}

ArrayStatistics Array::statistics() const
{
    const auto get = [](const std::atomic<uint64_t>& counter) {
        return counter.load(std::memory_order_relaxed);
    };
    const ArrayState::Counters& counters = state_->counters;
    return {
        .full_stripes = get(counters.full_stripes),
        .full_rows = get(counters.full_rows),
        .pad_blocks = get(counters.pad_blocks),
        .data_bytes_written = get(counters.data_bytes_written),
        .member_bytes_written = get(counters.member_bytes_written),
        .blocks_read = get(counters.blocks_read),
        .blocks_reconstructed = get(counters.blocks_reconstructed),
        .blocks_repaired = get(counters.blocks_repaired),
        .blocks_unrecoverable = get(counters.blocks_unrecoverable),
    };
}

}  // namespace cowraid
