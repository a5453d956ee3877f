// SPDX-License-Identifier: MIT
#include "alloc/slot_allocator.h"

#include <algorithm>
#include <utility>

#include "alloc/slot_plan.h"
#include "base/assert.h"

namespace cowraid {

namespace {

uint64_t slots_of(const std::vector<SlotRun>& runs)
{
    uint64_t count = 0;
    for (const SlotRun& run : runs)
        count += run.slot_count;
    return count;
}

// Takes room for groups of `profile` until they hold `blocks_max` or there is none left; what they hold.
uint64_t fill(std::vector<MemberRoom>& members, uint64_t& groups, const Profile& profile, uint64_t blocks_max)
{
    uint64_t blocks = 0;
    for (; blocks < blocks_max; ++groups) {
        const std::optional<GroupShape> shape = plan_shape(members, profile, groups);
        if (!shape)
            break;
        blocks += shape->data_columns * (shape->column_bytes / kBlockBytes);
        for (const size_t index : shape->members)
            members[index].free_slots -= shape->column_bytes / members[index].slot_bytes;
    }
    return blocks;
}

}  // namespace

void SlotAllocator::add_member(const MemberRecord& member, bool present)
{
    CW_ASSERT(find(member.id) == nullptr);
    members_.push_back({
        .record = member,
        .present = present,
        .leaving = false,
        .limit = member.slot_count,
        .taken = std::vector<bool>(member.slot_count, false),
        .free_slots = member.slot_count,
    });
}

void SlotAllocator::Member::count_free()
{
    free_slots = static_cast<uint64_t>(
        std::count(taken.begin(), taken.begin() + static_cast<ptrdiff_t>(limit), false));
}

bool SlotAllocator::resize_member(const MemberRecord& record)
{
    Member* const member = find(record.id);
    CW_ASSERT(member != nullptr);
    member->record = record;
    if (record.slot_count == member->taken.size())
        return false;
    for (uint64_t slot = record.slot_count; slot < member->taken.size(); ++slot)
        CW_ASSERT(!member->taken[slot]);
    member->taken.resize(record.slot_count, false);
    member->limit = record.slot_count;
    member->count_free();
    return true;
}

void SlotAllocator::set_limit(MemberId id, uint64_t slots)
{
    Member* const member = find(id);
    member->limit = std::min<uint64_t>(slots, member->taken.size());
    member->count_free();
}

void SlotAllocator::remove_member(MemberId id)
{
    const Member* const member = find(id);
    CW_ASSERT(member != nullptr && member->free_slots == member->record.slot_count);
    members_.erase(members_.begin() + (member - members_.data()));
}

void SlotAllocator::set_leaving(MemberId member, bool leaving)
{
    find(member)->leaving = leaving;
}

bool SlotAllocator::set_present(MemberId member, bool present)
{
    Member* found = find(member);
    CW_ASSERT(found != nullptr);
    return std::exchange(found->present, present) != present;
}

const SlotAllocator::Member* SlotAllocator::find(MemberId id) const
{
    const auto found = std::find_if(members_.begin(), members_.end(),
                                    [id](const Member& member) { return member.record.id == id; });
    return found == members_.end() ? nullptr : &*found;
}

SlotAllocator::Member* SlotAllocator::find(MemberId id)
{
    return const_cast<Member*>(std::as_const(*this).find(id));
}

// Marks every slot of the runs, which must all be in the other state. On failure nothing is changed.
bool SlotAllocator::mark(Member& member, const std::vector<SlotRun>& runs, Mark mark)
{
    const bool taken = mark == Mark::kTaken;
    std::vector<uint32_t> done;
    for (const SlotRun& run : runs) {
        for (uint64_t slot = run.first_slot; slot < uint64_t{run.first_slot} + run.slot_count; ++slot) {
            if (slot >= member.taken.size() || member.taken[slot] == taken) {
                for (const uint32_t undone : done)
                    member.taken[undone] = !taken;
                return false;
            }
            member.taken[slot] = taken;
            done.push_back(static_cast<uint32_t>(slot));
        }
    }
    const auto below = static_cast<uint64_t>(
        std::count_if(done.begin(), done.end(), [&](uint32_t slot) { return slot < member.limit; }));
    member.free_slots = taken ? member.free_slots - below : member.free_slots + below;
    return true;
}

Status SlotAllocator::take(const GroupRecord& group)
{
    for (size_t column = 0; column < group.columns.size(); ++column) {
        Member* member = find(group.columns[column].member);
        if (member != nullptr && mark(*member, group.columns[column].runs, Mark::kTaken))
            continue;
        while (column-- > 0)
            CW_ASSERT(mark(*find(group.columns[column].member), group.columns[column].runs, Mark::kFree));
        return Err::kCorrupt;
    }
    ++group_count_;
    return {};
}

void SlotAllocator::give_back(const GroupRecord& group)
{
    for (const GroupColumn& column : group.columns) {
        Member* member = find(column.member);
        CW_ASSERT(member != nullptr && mark(*member, column.runs, Mark::kFree));
    }
    --group_count_;
}

std::vector<MemberRoom> SlotAllocator::rooms(SlotMembers members) const
{
    std::vector<MemberRoom> rooms;
    for (const Member& member : members_) {
        rooms.push_back({
            .id = member.record.id,
            .slot_bytes = member.record.slot_bytes,
            .slot_count = member.leaving ? 0 : member.limit,
            .free_slots = member.leaving ? 0 : member.free_slots,
            .usable = member.present || members == SlotMembers::kAll,
            .away = !member.present,
        });
    }
    return rooms;
}

// One run where a gap is long enough (the lowest such), else the lowest free slots. `count` are free.
std::vector<SlotRun> SlotAllocator::pick_slots(const Member& member, uint64_t count)
{
    std::vector<SlotRun> gaps;  // up to the first that is long enough
    for (uint64_t slot = 0; slot < member.limit; ++slot) {
        if (member.taken[slot])
            continue;
        if (gaps.empty() || uint64_t{gaps.back().first_slot} + gaps.back().slot_count != slot)
            gaps.push_back({static_cast<uint32_t>(slot), 0});
        ++gaps.back().slot_count;
        if (gaps.back().slot_count == count)
            return {gaps.back()};
    }
    for (size_t used = 0; used < gaps.size(); ++used) {
        if (gaps[used].slot_count >= count) {
            gaps[used].slot_count = static_cast<uint32_t>(count);
            gaps.resize(used + 1);
            break;
        }
        count -= gaps[used].slot_count;
    }
    return gaps;
}

std::optional<GroupShape> SlotAllocator::shape_beside(std::span<const Share> kept, const Profile& profile,
                                                      SlotMembers members) const
{
    std::vector<MemberRoom> room = rooms(members);
    uint64_t groups = group_count_;
    for (const Share& share : kept)
        fill(room, groups, *share.profile, share.blocks);
    return plan_shape(room, profile, groups);
}

Result<GroupRecord> SlotAllocator::plan_group(const Profile& profile, uint32_t chunk_bytes,
                                              SlotMembers members, std::span<const Share> kept)
{
    std::optional<GroupShape> shape = shape_beside(kept, profile, members);
    if (!shape && members == SlotMembers::kPresentFirst)
        shape = shape_beside(kept, profile, SlotMembers::kAll);
    if (!shape)
        return Err::kNoSpace;
    GroupRecord group;
    group.profile = profile.id;
    group.column_bytes = shape->column_bytes;
    group.chunk_bytes = chunk_bytes;
    group.data_columns = shape->data_columns;
    group.mapping_version = 1;
    for (const size_t index : shape->members) {
        const Member& member = members_[index];
        const uint64_t slots = shape->column_bytes / member.record.slot_bytes;
        group.columns.push_back({member.record.id, pick_slots(member, slots)});
        CW_ASSERT(slots_of(group.columns.back().runs) == slots);
    }
    CW_ASSERT(take(group).ok());
    return group;
}

uint32_t SlotAllocator::planned_width(const Profile& profile, std::span<const Share> kept) const
{
    const std::optional<GroupShape> shape = shape_beside(kept, profile, SlotMembers::kPresent);
    return shape ? shape->data_columns : 0;
}

uint64_t SlotAllocator::potential_blocks(const Profile& profile, uint32_t chunk_bytes,
                                         std::span<const Share> kept, SlotMembers members) const
{
    CW_ASSERT(chunk_bytes <= kMinSlotBytes && kMinSlotBytes % chunk_bytes == 0);
    std::vector<MemberRoom> room = rooms(members);
    uint64_t groups = group_count_;
    for (const Share& share : kept)
        fill(room, groups, *share.profile, share.blocks);
    const uint64_t blocks = fill(room, groups, profile, UINT64_MAX);
    if (members != SlotMembers::kPresentFirst)
        return blocks;
    for (MemberRoom& member : room)
        member.usable = true;
    return blocks + fill(room, groups, profile, UINT64_MAX);
}

SlotForecast SlotAllocator::forecast(SlotMembers members) const
{
    SlotForecast forecast;
    forecast.room_ = rooms(members);
    forecast.group_count_ = group_count_;
    for (size_t index = 0; index < members_.size(); ++index)  // what comes free there is nobody's
        forecast.room_[index].usable = forecast.room_[index].usable && !members_[index].leaving;
    return forecast;
}

uint64_t SlotForecast::make_groups(const Profile& profile, uint64_t blocks)
{
    return fill(room_, group_count_, profile, blocks);
}

void SlotForecast::give_back(const GroupRecord& group)
{
    for (const GroupColumn& column : group.columns)
        for (MemberRoom& member : room_)
            for (const SlotRun& run : column.runs)
                if (member.id == column.member && run.first_slot < member.slot_count)
                    member.free_slots +=
                        std::min<uint64_t>(run.slot_count, member.slot_count - run.first_slot);
    --group_count_;
}

uint64_t SlotAllocator::free_bytes(MemberId member) const
{
    const Member* const found = find(member);
    return found == nullptr ? 0 : found->free_slots * found->record.slot_bytes;
}

bool SlotAllocator::is_free(MemberId member, uint64_t slot) const
{
    const Member* const found = find(member);
    return found != nullptr && slot < found->limit && slot < found->taken.size() && !found->taken[slot];
}

}  // namespace cowraid
