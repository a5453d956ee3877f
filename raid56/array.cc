// SPDX-License-Identifier: MIT
// What all operations of the array share. Each operation is in a file of its own.
#include "raid56/array.h"

#include <algorithm>

#include "raid56/array_state.h"
#include "raid56/partial_write.h"

namespace cowraid {

ArrayState::ArrayState(MemberSet& member_set) : members(member_set)
{
    members.set_failure_policy(this);
}

ArrayState::~ArrayState()
{
    members.set_failure_policy(nullptr);
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

bool ArrayState::whole() const
{
    const Ref<const GroupList> list = groups.list();
    return std::all_of(list->groups.begin(), list->groups.end(),
                       [&](const Ref<const ArrayGroup>& group) { return missing_columns(*group) == 0; });
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
    return {
        .member = record.member,
        .device = state.members.device(record.member),
        .offset = group.locate(column, column_offset(group.geometry, place)).offset,
        .stale = record.stale(),
        .blank = record.stale() && record.stale_since <= group.record.created_generation,
    };
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

bool Array::read_only() const
{
    return state_->read_only.load(std::memory_order_acquire);
}

void Array::set_filling(bool filling)
{
    state_->filling.store(filling, std::memory_order_release);
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

ArrayStatistics Array::statistics() const
{
    const ArrayState::Counters& counters = state_->counters;
    return {
        .full_stripes = count_of(counters.full_stripes),
        .full_rows = count_of(counters.full_rows),
        .pad_blocks = count_of(counters.pad_blocks),
        .data_bytes_written = count_of(counters.data_bytes_written),
        .member_bytes_written = count_of(counters.member_bytes_written),
        .blocks_read = count_of(counters.blocks_read),
        .blocks_reconstructed = count_of(counters.blocks_reconstructed),
        .blocks_repaired = count_of(counters.blocks_repaired),
        .blocks_unrecoverable = count_of(counters.blocks_unrecoverable),
    };
}

}  // namespace cowraid
