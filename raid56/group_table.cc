// SPDX-License-Identifier: MIT
#include "raid56/group_table.h"

#include <algorithm>

#include "base/assert.h"
#include "format/profile.h"
#include "format/superblock.h"
#include "raid56/array_state.h"
#include "raid56/parity.h"

namespace cowraid {

namespace {

bool shape_is_sane(const GroupRecord& record, const Profile& profile)
{
    if (!is_power_of_two(record.chunk_bytes) || record.chunk_bytes < kMinChunkBytes ||
        record.chunk_bytes > kMaxChunkBytes)
        return false;
    if (record.column_bytes == 0 || record.column_bytes % record.chunk_bytes != 0)
        return false;
    if (record.data_columns == 0 || profile.parity > kMaxParity)
        return false;
    if (profile.parity > 0 && record.data_columns > kMaxDataColumns)
        return false;
    if (record.columns.size() != uint64_t{record.data_columns} * profile.copies + profile.parity)
        return false;
    // The whole range must fit below 2^63, so that sums of addresses never wrap.
    const uint64_t columns = uint64_t{record.data_columns} + profile.parity;
    constexpr uint64_t kLimit = uint64_t{1} << 63;
    return record.address.valid() && record.address.value % kBlockBytes == 0 &&
           record.column_bytes <= kLimit / columns &&
           record.address.value <= kLimit - columns * record.column_bytes;
}

bool members_are_distinct(const GroupRecord& record)
{
    std::vector<MemberId> members;
    for (const GroupColumn& column : record.columns)
        members.push_back(column.member);
    std::sort(members.begin(), members.end());
    return std::adjacent_find(members.begin(), members.end()) == members.end();
}

// The column's slot runs as device extents; neighbours are joined. False when they contradict the member.
bool resolve_column(const GroupRecord& record, const GroupColumn& column, const Superblock& superblock,
                    std::vector<ArrayGroup::Extent>& extents)
{
    const MemberRecord* member = superblock.member(column.member);
    if (member == nullptr || member->slot_bytes == 0 || member->slot_bytes % record.chunk_bytes != 0 ||
        member->slots_offset % kBlockBytes != 0)
        return false;
    uint64_t bytes = 0;
    for (const SlotRun& run : column.runs) {
        if (run.slot_count == 0 || run.first_slot >= member->slot_count ||
            run.slot_count > member->slot_count - run.first_slot)
            return false;
        const DeviceOffset offset = DeviceOffset{member->slots_offset} + run.first_slot * member->slot_bytes;
        const uint64_t run_bytes = run.slot_count * member->slot_bytes;
        if (!extents.empty() && extents.back().offset + extents.back().bytes == offset)
            extents.back().bytes += run_bytes;
        else
            extents.push_back({offset, run_bytes});
        bytes += run_bytes;
    }
    return bytes == record.column_bytes;
}

}  // namespace

bool ArrayGroup::has_data(VolumeAddress address, uint64_t block_count) const
{
    const uint64_t data_bytes = record.data_bytes();
    const uint64_t offset = address - record.address;
    return block_count > 0 && address.value % kBlockBytes == 0 && offset < data_bytes &&
           block_count <= (data_bytes - offset) / kBlockBytes;
}

ArrayGroup::Extent ArrayGroup::locate(uint32_t column, uint64_t offset) const
{
    const std::vector<uint64_t>& begin = starts[column];
    const auto after = std::upper_bound(begin.begin(), begin.end(), offset);
    const auto index = static_cast<size_t>(after - begin.begin()) - 1;
    const Extent& extent = extents[column][index];
    const uint64_t inside = offset - begin[index];
    CW_ASSERT(inside < extent.bytes);
    return {extent.offset + inside, extent.bytes - inside};
}

void ArrayGroup::locate_stripes(uint64_t first, uint64_t count, std::vector<MemberPart>& out) const
{
    const uint32_t set_columns = geometry.columns();
    for (uint32_t column = 0; column < record.columns.size(); ++column) {
        // The turns of the column's set: neighbouring chunks of it.
        const uint32_t set = column / set_columns;
        const auto turns_before = [&](uint64_t stripe) {
            return (stripe + geometry.sets - 1 - set) / geometry.sets;
        };
        uint64_t offset = turns_before(first) * geometry.chunk_bytes;
        const uint64_t end = turns_before(first + count) * geometry.chunk_bytes;
        while (offset < end) {
            const Extent extent = locate(column, offset);
            const uint64_t bytes = std::min(extent.bytes, end - offset);
            out.push_back({record.columns[column].member, extent.offset, bytes});
            offset += bytes;
        }
    }
}

Result<Ref<const ArrayGroup>> make_array_group(const GroupRecord& record, const Superblock& superblock)
{
    const Profile* profile = find_profile(record.profile);
    if (profile == nullptr || !shape_is_sane(record, *profile) || !members_are_distinct(record))
        return Err::kInvalid;
    auto group = make_ref<ArrayGroup>();
    group->record = record;
    group->geometry = geometry_of(record);
    group->tolerance = profile->tolerance;
    for (const GroupColumn& column : record.columns) {
        std::vector<ArrayGroup::Extent>& extents = group->extents.emplace_back();
        if (!resolve_column(record, column, superblock, extents))
            return Err::kInvalid;
        std::vector<uint64_t>& starts = group->starts.emplace_back();
        uint64_t at = 0;
        for (const ArrayGroup::Extent& extent : extents) {
            starts.push_back(at);
            at += extent.bytes;
        }
    }
    return Ref<const ArrayGroup>(group.get());
}

const ArrayGroup* GroupList::find(VolumeAddress address) const
{
    const auto after =
        std::upper_bound(groups.begin(), groups.end(), address, [](VolumeAddress wanted, const auto& group) {
            return wanted < group->record.address;
        });
    if (after == groups.begin())
        return nullptr;
    const ArrayGroup* group = std::prev(after)->get();
    return address - group->record.address < group->record.span_bytes() ? group : nullptr;
}

GroupTable::GroupTable() : list_(new GroupList) { }

Ref<const GroupList> GroupTable::list() const
{
    MutexLock guard(mutex_);
    return list_;
}

Status GroupTable::add(Ref<const ArrayGroup> group)
{
    MutexLock guard(mutex_);
    const VolumeAddress begin = group->record.address;
    const VolumeAddress end = begin + group->record.span_bytes();
    auto next = make_ref<GroupList>();
    next->groups = list_->groups;
    const auto place = std::lower_bound(
        next->groups.begin(), next->groups.end(), begin,
        [](const auto& have, VolumeAddress wanted) { return have->record.address < wanted; });
    if (place != next->groups.end() && (*place)->record.address < end)
        return Err::kInvalid;
    if (list_->find(begin) != nullptr)
        return Err::kInvalid;
    next->groups.insert(place, std::move(group));
    list_ = Ref<const GroupList>(next.get());
    return {};
}

void GroupTable::replace(std::span<const Ref<const ArrayGroup>> groups)
{
    MutexLock guard(mutex_);
    auto next = make_ref<GroupList>();
    next->groups = list_->groups;
    for (const Ref<const ArrayGroup>& group : groups) {
        const VolumeAddress address = group->record.address;
        const auto place = std::lower_bound(
            next->groups.begin(), next->groups.end(), address,
            [](const auto& have, VolumeAddress wanted) { return have->record.address < wanted; });
        if (place != next->groups.end() && (*place)->record.address == address)
            *place = group;
    }
    list_ = Ref<const GroupList>(next.get());
}

void GroupTable::remove(std::span<const VolumeAddress> addresses)
{
    MutexLock guard(mutex_);
    auto next = make_ref<GroupList>();
    for (const Ref<const ArrayGroup>& group : list_->groups)
        if (!std::binary_search(addresses.begin(), addresses.end(), group->record.address))
            next->groups.push_back(group);
    list_ = Ref<const GroupList>(next.get());
}

Status Array::add_group(const GroupRecord& record, const Superblock& superblock)
{
    CW_ASSIGN(Ref<const ArrayGroup> group, make_array_group(record, superblock));
    return state_->groups.add(std::move(group));
}

void Array::remove_groups(std::span<const VolumeAddress> addresses)
{
    state_->groups.remove(addresses);
}

Ref<const ArrayGroup> Array::group_at(VolumeAddress address) const
{
    return Ref<const ArrayGroup>(state_->groups.list()->find(address));
}

Groups Array::groups() const
{
    return Groups(state_->groups.list());
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

}  // namespace cowraid
