// SPDX-License-Identifier: MIT
#include "format/member_layout.h"

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <limits>

#include "base/assert.h"

namespace cowraid {

namespace {

constexpr uint64_t kRingBytes = uint64_t{kSuperblockSlotCount} * kSuperblockSlotBytes;
constexpr uint64_t kSlotsPerMember = 1024;  // aim; slots are rounded to a power of two and clamped

// The head of a member by its size, in MiB. The rings stand at 64 KiB and 12 MiB in every head, which is
// why the larger map places begin behind 12.5 MiB. What is not listed is unused.
struct HeadPlan {
    uint64_t below_bytes;  // for members smaller than this
    uint64_t head_mib;
    uint64_t map_mib[2];
    uint64_t map_room_mib;
    uint64_t intent_mib, intent_room_mib;
    uint64_t fsync_mib, fsync_room_mib;
};

constexpr HeadPlan kHeadPlans[] = {
    {1 * kGiB, 16, {1, 3}, 2, 13, 3, 5, 7},
    {64 * kGiB, 64, {1, 13}, 8, 21, 16, 37, 27},
    {std::numeric_limits<uint64_t>::max(), 256, {13, 45}, 32, 77, 64, 141, 115},
};

// The largest of them all.
constexpr const HeadPlan& kLargestHead = kHeadPlans[std::size(kHeadPlans) - 1];
// Above this a member has slots of the largest size.
constexpr uint64_t kMaxSmallSlots = uint64_t{1} << 20;

struct Zone {
    uint64_t offset;
    uint64_t bytes;
};

// Zones of a record; the slots come last. The product of the slots must have been checked.
std::array<Zone, 7> zones_of(const MemberRecord& record)
{
    return {{
        {kSuperblockRingOffset[0], kRingBytes},
        {kSuperblockRingOffset[1], kRingBytes},
        {record.map_offset[0], record.map_bytes},
        {record.map_offset[1], record.map_bytes},
        {record.intent_log_offset, record.intent_log_bytes},
        {record.fsync_log_offset, record.fsync_log_bytes},
        {record.slots_offset, record.slot_bytes * record.slot_count},
    }};
}

bool slots_valid(const MemberRecord& record)
{
    if (!is_power_of_two(record.slot_bytes) || record.slot_bytes < kMinSlotBytes ||
        record.slot_bytes > kMaxSlotBytes)
        return false;
    if (record.slot_count == 0 || record.slot_count > std::numeric_limits<uint32_t>::max() ||
        (record.slot_count > kMaxSmallSlots && record.slot_bytes < kMaxSlotBytes))
        return false;
    if (record.slots_offset < kMinHeadBytes || record.slots_offset % kMiB != 0)
        return false;
    return record.slots_offset <= record.size_bytes &&
           record.slot_count <= (record.size_bytes - record.slots_offset) / record.slot_bytes;
}

uint64_t plan_slot_bytes(uint64_t size_bytes)
{
    const uint64_t even = divide_up(size_bytes, kSlotsPerMember);
    return even >= kMaxSlotBytes ? kMaxSlotBytes : std::max(kMinSlotBytes, std::bit_ceil(even));
}

}  // namespace

bool member_layout_valid(const MemberRecord& record)
{
    if (record.size_bytes < kMinMemberBytes || record.size_bytes > kMaxMemberBytes || !slots_valid(record))
        return false;
    if (record.map_bytes > kLargestHead.map_room_mib * kMiB ||
        record.intent_log_bytes > kLargestHead.intent_room_mib * kMiB ||
        record.fsync_log_bytes > kLargestHead.fsync_room_mib * kMiB)
        return false;
    std::array<Zone, 7> zones = zones_of(record);
    for (const Zone& zone : zones) {
        const bool aligned = zone.offset % kBlockBytes == 0 && zone.bytes % kBlockBytes == 0;
        if (!aligned || zone.offset == 0 || zone.bytes == 0 || zone.offset > record.size_bytes ||
            zone.bytes > record.size_bytes - zone.offset)
            return false;
    }
    std::sort(zones.begin(), zones.end(), [](const Zone& a, const Zone& b) { return a.offset < b.offset; });
    for (size_t index = 1; index < zones.size(); ++index) {
        if (zones[index].offset < zones[index - 1].offset + zones[index - 1].bytes)
            return false;
    }
    return true;
}

uint64_t max_column_bytes(uint64_t slots_bytes)
{
    return std::max(kMaxSlotBytes, std::bit_ceil(slots_bytes / 8));
}

uint64_t raw_blocks(std::span<const MemberRecord> members)
{
    uint64_t blocks = 0;
    for (const MemberRecord& record : members)
        blocks += record.size_bytes / kBlockBytes;
    return blocks;
}

Result<MemberRecord> plan_member_layout(uint64_t size_bytes)
{
    if (size_bytes < kMinMemberBytes || size_bytes > kMaxMemberBytes)
        return Err::kInvalid;
    const HeadPlan& plan = *std::find_if(std::begin(kHeadPlans), std::end(kHeadPlans),
                                         [=](const HeadPlan& row) { return size_bytes < row.below_bytes; });
    MemberRecord record;
    record.size_bytes = size_bytes;
    record.slots_offset = plan.head_mib * kMiB;
    record.slot_bytes = plan_slot_bytes(size_bytes);
    record.slot_count = (size_bytes - record.slots_offset) / record.slot_bytes;
    record.map_offset = {plan.map_mib[0] * kMiB, plan.map_mib[1] * kMiB};
    record.map_bytes = plan.map_room_mib * kMiB;
    record.intent_log_offset = plan.intent_mib * kMiB;
    record.intent_log_bytes = plan.intent_room_mib * kMiB;
    record.fsync_log_offset = plan.fsync_mib * kMiB;
    record.fsync_log_bytes = plan.fsync_room_mib * kMiB;
    CW_ASSERT(member_layout_valid(record));
    return record;
}

Status grow_member_layout(MemberRecord& record, uint64_t size_bytes)
{
    if (size_bytes <= record.size_bytes || size_bytes > kMaxMemberBytes)
        return Err::kInvalid;
    MemberRecord grown = record;
    grown.size_bytes = size_bytes;
    grown.slot_count = (size_bytes - record.slots_offset) / record.slot_bytes;
    if (record.slot_bytes < kMaxSlotBytes && grown.slot_count > kMaxSmallSlots) {
        grown.slot_count = kMaxSmallSlots;
        grown.size_bytes = record.slots_offset + kMaxSmallSlots * record.slot_bytes;
    }
    // A forged record may have something behind the slots.
    if (grown.slot_count <= record.slot_count || !member_layout_valid(grown))
        return Err::kInvalid;
    record = grown;
    return {};
}

uint64_t min_size_of(const MemberRecord& record)
{
    return std::max(kMinMemberBytes, record.slots_offset + record.slot_bytes);
}

Status shrink_member_layout(MemberRecord& record, uint64_t size_bytes)
{
    if (size_bytes >= record.size_bytes || size_bytes < min_size_of(record))
        return Err::kInvalid;
    MemberRecord shrunk = record;
    shrunk.size_bytes = size_bytes;
    shrunk.slot_count = std::min(record.slot_count, (size_bytes - record.slots_offset) / record.slot_bytes);
    if (!member_layout_valid(shrunk))
        return Err::kInvalid;
    record = shrunk;
    return {};
}

}  // namespace cowraid
