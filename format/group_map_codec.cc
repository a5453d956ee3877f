// SPDX-License-Identifier: MIT
#include "format/group_map_codec.h"

#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "format/member_layout.h"
#include "format/profile.h"

namespace cowraid {

namespace {

constexpr uint32_t kFlagBits = kGroupReadOnly | kGroupEmptying | kGroupCopied | kGroupChosen;

// Walks a byte range; every take checks what is left.
class Cursor {
public:
    explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) { }

    // False, with the cursor where it was, when fewer bytes are left than the structure has.
    template <typename T> [[nodiscard]] bool take(T& out)
    {
        if (bytes_.size() < sizeof out)
            return false;
        std::memcpy(&out, bytes_.data(), sizeof out);
        bytes_ = bytes_.subspan(sizeof out);
        return true;
    }
    [[nodiscard]] size_t left() const { return bytes_.size(); }
    // A cursor over the next `bytes`, which must be left; this one moves behind them.
    Cursor split(size_t bytes)
    {
        CW_ASSERT(bytes <= bytes_.size());
        Cursor part(bytes_.first(bytes));
        bytes_ = bytes_.subspan(bytes);
        return part;
    }
    [[nodiscard]] bool all_zero() const
    {
        return std::all_of(bytes_.begin(), bytes_.end(), [](std::byte byte) { return byte == std::byte{0}; });
    }

private:
    std::span<const std::byte> bytes_;
};

// Slots of one member that a group names, to find slots named twice.
struct SlotUse {
    MemberId member;
    SlotRun run;
};

bool decode_column(Cursor& cursor, GroupColumn& column)
{
    DiskGroupColumn disk;
    if (!cursor.take(disk) || disk.run_count > cursor.left() / sizeof(DiskSlotRun))
        return false;
    column.member = {disk.member_id};
    column.stale_since = {disk.stale_since};
    column.runs.reserve(disk.run_count);
    for (uint32_t index = 0; index < disk.run_count; ++index) {
        DiskSlotRun run;
        if (!cursor.take(run))
            return false;
        column.runs.push_back({.first_slot = run.first_slot, .slot_count = run.slot_count});
    }
    return true;
}

bool decode_group(Cursor& cursor, GroupRecord& group)
{
    Cursor start = cursor;
    DiskGroup disk;
    if (!start.take(disk) || disk.record_bytes < sizeof disk || disk.record_bytes > cursor.left())
        return false;
    Cursor record = cursor.split(disk.record_bytes);
    if (!record.take(disk) || disk.column_count > record.left() / sizeof(DiskGroupColumn))
        return false;
    group.address = {disk.address};
    group.content = disk.content;
    group.profile = static_cast<ProfileId>(disk.profile.get());
    group.flags = disk.flags;
    group.column_bytes = disk.column_bytes;
    group.chunk_bytes = disk.chunk_bytes;
    group.data_columns = disk.data_columns;
    group.mapping_version = disk.mapping_version;
    group.created_generation = {disk.created_generation};
    group.verified_seconds = disk.verified_seconds;
    group.columns.resize(disk.column_count);
    for (GroupColumn& column : group.columns) {
        if (!decode_column(record, column))
            return false;
    }
    return record.left() == 0;
}

// Everything that needs neither the superblock nor other groups.
bool shape_valid(const GroupRecord& group)
{
    const Profile* profile = find_profile(group.profile);
    if (profile == nullptr || group.content == 0 || (group.content & ~kAllContent) != 0 ||
        (group.flags & ~kFlagBits) != 0)
        return false;
    // Nodes are known by their address.
    if ((group.flags & kGroupEmptying) != 0 && group.content != kGroupData)
        return false;
    // Trees that describe the parity blocks themselves cannot live under parity.
    if ((group.content & kGroupSystem) != 0 && profile->parity != 0)
        return false;
    if (!is_power_of_two(group.chunk_bytes) || group.chunk_bytes < kMinChunkBytes ||
        group.chunk_bytes > kMaxChunkBytes)
        return false;
    const uint64_t columns = group.columns.size();
    if (group.data_columns == 0 || columns > kMaxMembers || columns < profile->min_members ||
        (profile->max_columns != 0 && columns > profile->max_columns) ||
        columns != uint64_t{group.data_columns} * profile->copies + profile->parity)
        return false;
    if (group.column_bytes == 0 || group.column_bytes % group.chunk_bytes != 0 ||
        group.column_bytes > kMaxVolumeAddress / (uint64_t{group.data_columns} + profile->parity))
        return false;
    return group.address.valid() && group.address.value % kBlockBytes == 0 &&
           group.address.value <= kMaxVolumeAddress - group.span_bytes();
}

// Slots inside their members, as many as the column needs, no member twice, and not the target of a
// replacement, which goes with its slots free.
bool columns_valid(const GroupRecord& group, const Superblock& superblock, std::vector<SlotUse>& used)
{
    std::vector<MemberId> members;
    for (const GroupColumn& column : group.columns) {
        const MemberRecord* member = superblock.member(column.member);
        if (member == nullptr || (superblock.replace.active() && column.member == superblock.replace.target))
            return false;
        members.push_back(column.member);
        uint64_t slots = 0;
        for (const SlotRun& run : column.runs) {
            if (run.slot_count == 0 || uint64_t{run.first_slot} + run.slot_count > member->slot_count)
                return false;
            slots += run.slot_count;  // at most slot_count per run, so at most 2^64 / 2^32 runs to wrap
            used.push_back({column.member, run});
        }
        if (group.column_bytes % member->slot_bytes != 0 || slots != group.column_bytes / member->slot_bytes)
            return false;
    }
    std::sort(members.begin(), members.end());
    return std::adjacent_find(members.begin(), members.end()) == members.end();
}

// From no commit before the group was made, and none after the map.
bool staleness_valid(const GroupRecord& group, Generation map_generation)
{
    return std::all_of(group.columns.begin(), group.columns.end(), [&](const GroupColumn& column) {
        return !column.stale() ||
               (column.stale_since >= group.created_generation && column.stale_since <= map_generation);
    });
}

bool slots_used_once(std::vector<SlotUse>& used)
{
    std::sort(used.begin(), used.end(), [](const SlotUse& a, const SlotUse& b) {
        return a.member != b.member ? a.member < b.member : a.run.first_slot < b.run.first_slot;
    });
    for (size_t index = 1; index < used.size(); ++index) {
        const SlotUse& before = used[index - 1];
        if (before.member == used[index].member &&
            uint64_t{before.run.first_slot} + before.run.slot_count > used[index].run.first_slot)
            return false;
    }
    return true;
}

bool map_valid(const GroupMap& map, const Superblock& superblock)
{
    std::vector<SlotUse> used;
    VolumeAddress free_from{kBlockBytes};
    const uint64_t column_bytes = column_bytes_max(superblock);
    for (const GroupRecord& group : map.groups) {
        if (!shape_valid(group) || group.column_bytes > column_bytes ||
            !columns_valid(group, superblock, used))
            return false;
        if (group.created_generation.value == 0 || group.created_generation > map.generation ||
            !staleness_valid(group, map.generation) || group.address < free_from)
            return false;
        if ((group.flags & kGroupCopied) != 0 && !superblock.replace.active())
            return false;
        if ((group.flags & kGroupChosen) != 0 && (superblock.balance.content & kBalanceChosen) == 0)
            return false;
        free_from = group.address + group.span_bytes();
    }
    return free_from.value <= superblock.next_group_address && slots_used_once(used);
}

uint64_t record_bytes(const GroupRecord& group)
{
    uint64_t bytes = sizeof(DiskGroup);
    for (const GroupColumn& column : group.columns)
        bytes += sizeof(DiskGroupColumn) + column.runs.size() * sizeof(DiskSlotRun);
    return bytes;
}

template <typename T> std::byte* put(std::byte* place, const T& structure)
{
    std::memcpy(place, &structure, sizeof structure);
    return place + sizeof structure;
}

std::byte* encode_group(const GroupRecord& group, std::byte* place)
{
    DiskGroup disk;
    std::memset(&disk, 0, sizeof disk);
    disk.record_bytes = static_cast<uint32_t>(record_bytes(group));
    disk.content = group.content;
    disk.profile = static_cast<uint32_t>(group.profile);
    disk.flags = group.flags;
    disk.address = group.address.value;
    disk.column_bytes = group.column_bytes;
    disk.chunk_bytes = group.chunk_bytes;
    disk.data_columns = group.data_columns;
    disk.column_count = static_cast<uint32_t>(group.columns.size());
    disk.mapping_version = group.mapping_version;
    disk.created_generation = group.created_generation.value;
    disk.verified_seconds = group.verified_seconds;
    place = put(place, disk);
    for (const GroupColumn& column : group.columns) {
        place = put(place, DiskGroupColumn{column.member.value, static_cast<uint32_t>(column.runs.size()),
                                           column.stale_since.value});
        for (const SlotRun& run : column.runs)
            place = put(place, DiskSlotRun{run.first_slot, run.slot_count});
    }
    return place;
}

}  // namespace

uint64_t GroupRecord::span_bytes() const
{
    const Profile* known = find_profile(profile);
    CW_ASSERT(known != nullptr);
    return (uint64_t{data_columns} + known->parity) * column_bytes;
}

uint64_t column_bytes_max(const Superblock& superblock, MemberId without)
{
    uint64_t largest = 0;
    for (const MemberRecord& member : superblock.members)
        if (member.id != without)
            largest = std::max(largest, member.slot_count * member.slot_bytes);
    return max_column_bytes(largest);
}

uint64_t encoded_bytes(const GroupMap& map, const GroupRecord& another)
{
    uint64_t bytes = sizeof(DiskGroupMap) + record_bytes(another);
    for (const GroupRecord& group : map.groups)
        bytes += record_bytes(group);
    return round_up(bytes, kBlockBytes);
}

std::vector<std::byte> encode_group_map(const GroupMap& map, const Uuid& volume_uuid, MapRef& map_ref)
{
    CW_ASSERT(map.groups.size() <= kMaxGroups);
    uint64_t bytes = sizeof(DiskGroupMap);
    for (const GroupRecord& group : map.groups)
        bytes += record_bytes(group);
    bytes = round_up(bytes, kBlockBytes);
    CW_ASSERT(bytes <= kMaxMapBytes);
    std::vector<std::byte> out(bytes);
    DiskGroupMap head;
    std::memset(&head, 0, sizeof head);
    head.magic = kGroupMapMagic;
    std::memcpy(head.volume_uuid, volume_uuid.bytes.data(), sizeof head.volume_uuid);
    head.generation = map.generation.value;
    head.bytes = static_cast<uint32_t>(bytes);
    head.group_count = static_cast<uint32_t>(map.groups.size());
    std::byte* place = put(out.data(), head);
    for (const GroupRecord& group : map.groups)
        place = encode_group(group, place);
    const Checksum checksum = checksum_of(out.data() + sizeof head.checksum, bytes - sizeof head.checksum);
    put(out.data(), le64{checksum});
    map_ref.generation = map.generation;
    map_ref.checksum = checksum;
    map_ref.bytes = static_cast<uint32_t>(bytes);
    return out;
}

Result<GroupMap> decode_group_map(std::span<const std::byte> bytes, const MapRef& expected,
                                  const Superblock& superblock)
{
    DiskGroupMap head;
    if (expected.bytes < sizeof head || bytes.size() < expected.bytes)
        return Err::kCorrupt;
    bytes = bytes.first(expected.bytes);
    Cursor cursor(bytes);
    if (!cursor.take(head) || head.magic != kGroupMapMagic || head.bytes != expected.bytes ||
        head.checksum != expected.checksum || head.generation != expected.generation.value ||
        std::memcmp(head.volume_uuid, superblock.volume_uuid.bytes.data(), sizeof head.volume_uuid) != 0)
        return Err::kCorrupt;
    if (head.checksum != checksum_of(bytes.subspan(sizeof head.checksum)))
        return Err::kCorrupt;
    if (head.group_count > kMaxGroups)
        return Err::kCorrupt;
    GroupMap map;
    map.generation = {head.generation};
    map.groups.resize(head.group_count);
    for (GroupRecord& group : map.groups) {
        if (!decode_group(cursor, group))
            return Err::kCorrupt;
    }
    if (!cursor.all_zero() || cursor.left() >= kBlockBytes || !map_valid(map, superblock))
        return Err::kCorrupt;
    return map;
}

}  // namespace cowraid
