// SPDX-License-Identifier: MIT
#include "fs/layout.h"

#include <algorithm>
#include <map>

namespace cowraid {

namespace {

constexpr uint64_t kBlocksAtOnce = 65536;

// Adds blocks of contiguous addresses to the parts that their stripes are in.
void add_run(LayoutGroup& group, const Geometry& geometry, const BlockRun& run)
{
    const uint64_t stripe_bytes = geometry.stripe_data_bytes();
    uint64_t offset = run.address.value - group.address.value;
    const uint64_t end = offset + run.block_count * kBlockBytes;
    while (offset < end) {
        const uint64_t stripe = offset / stripe_bytes;
        const uint64_t bytes = std::min(end, (stripe + 1) * stripe_bytes) - offset;
        const uint64_t part = column_offset(geometry, {.stripe = stripe}) / group.part_bytes;
        if (part < group.used_by_part.size())
            group.used_by_part[part] += bytes;
        offset += bytes;
    }
}

void add_parts(Allocator& allocator, const GroupRecord& record, uint64_t part_bytes, LayoutGroup& group)
{
    group.part_bytes = part_bytes;
    group.used_by_part.assign(record.column_bytes / part_bytes, 0);
    const Geometry geometry = geometry_of(record);
    const VolumeAddress end = record.address + record.data_bytes();
    std::vector<BlockRun> runs;
    for (VolumeAddress from = record.address; from < end;) {
        runs.clear();
        if (!allocator.live_blocks(from, kBlocksAtOnce, runs).ok()) {
            group.used_by_part.clear();
            return;
        }
        if (runs.empty())
            return;
        for (const BlockRun& run : runs)
            add_run(group, geometry, run);
        from = runs.back().address + runs.back().block_count * kBlockBytes;
    }
}

uint64_t run_count(const GroupRecord& record)
{
    uint64_t count = 0;
    for (const GroupColumn& column : record.columns)
        count += 1 + column.runs.size();
    return count;
}

// The smallest slot that the group has: a column is a whole number of them.
uint64_t part_bytes_of(const GroupRecord& record, const std::vector<LayoutMember>& members)
{
    uint64_t bytes = record.column_bytes;
    for (const LayoutMember& member : members)
        for (const GroupColumn& column : record.columns)
            if (column.member == member.id)
                bytes = std::min(bytes, member.slot_bytes);
    return std::max<uint64_t>(bytes, record.chunk_bytes);
}

}  // namespace

VolumeLayout volume_layout(Filesystem& filesystem, VolumeAddress from, Occupancy occupancy,
                           uint64_t items_max)
{
    VolumeLayout layout;
    Volume& volume = *filesystem.volume;
    layout.uuid = volume.identity().uuid;
    layout.label = volume.identity().label;
    for (const MemberRecord& record : volume.member_table())
        layout.members.push_back({record.id, volume.members().path(record.id), record.slot_bytes,
                                  record.slot_count, record.slots_offset});
    std::map<VolumeAddress, GroupNumbers> numbers;
    for (const GroupNumbers& group : filesystem.store.allocator.group_numbers(kAllContent))
        numbers.emplace(group.address, group);
    uint64_t items = 0;
    for (const Ref<const ArrayGroup>& array_group : volume.array().groups()) {
        const GroupRecord& record = array_group->record;
        if (record.address < from)
            continue;
        if (items >= items_max) {
            layout.next = record.address;
            break;
        }
        LayoutGroup group{.address = record.address,
                          .content = record.content,
                          .profile = record.profile,
                          .data_columns = record.data_columns,
                          .column_bytes = record.column_bytes,
                          .total_bytes = record.data_bytes(),
                          .columns = record.columns,
                          .verified = record.verified_seconds};
        if (const auto found = numbers.find(record.address); found != numbers.end())
            group.used_bytes = found->second.live_blocks * kBlockBytes;
        if (occupancy == Occupancy::kStripes)
            add_parts(filesystem.store.allocator, record, part_bytes_of(record, layout.members), group);
        items += run_count(record) + group.used_by_part.size();
        layout.groups.push_back(std::move(group));
    }
    return layout;
}

}  // namespace cowraid
