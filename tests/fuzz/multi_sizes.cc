// SPDX-License-Identifier: MIT
// Recipes for superblock and block-group map: sizes with places, counts with arrays.
#include <algorithm>
#include <cstddef>

#include "format/feature_table.h"
#include "format/profile.h"
#include "raid56/geometry.h"
#include "tests/fuzz/multi_field.h"

namespace cowraid::test {

namespace {

// Members become as large as their lines say: the rest is zeros that take no memory.
uint64_t enlarge_members(MultiEdit& edit)
{
    const uint64_t drawn =
        edit.chance(1, 3) ? edit.size_between(28, 35) : edit.size_between(36, edit.chance(1, 8) ? 62 : 53);
    const uint64_t bytes = std::max(drawn, edit.editor.members()[0]->size_bytes());
    for (const std::unique_ptr<SimDevice>& member : edit.editor.members())
        member->enlarge(bytes);
    for (size_t i = 0; i < edit.line_count(); ++i) {
        DiskMember line = edit.line(i);
        line.size_bytes = edit.near(bytes);
        edit.set_line(i, line);
    }
    return bytes;
}

uint64_t slots_end(const DiskMember& line)
{
    return line.slots_offset + line.slot_bytes * line.slot_count;
}

// All slots that fit, behind those that are there.
void add_slots(MultiEdit& edit, uint64_t member_bytes)
{
    const uint64_t limit = edit.chance(1, 8) ? UINT64_MAX : uint64_t{1} << edit.prng.between(4, 20);
    for (size_t i = 0; i < edit.line_count(); ++i) {
        DiskMember line = edit.line(i);
        const uint64_t fit = (member_bytes - line.slots_offset) / line.slot_bytes;
        line.slot_count = edit.near(std::max(line.slot_count.get(), std::min(fit, limit)));
        edit.set_line(i, line);
    }
}

uint64_t log_bytes(MultiEdit& edit)
{
    const uint64_t choice[] = {kBlockBytes, 3 * kMiB,
                               64 * kMiB,   64 * kMiB + kBlockBytes,
                               115 * kMiB,  400 * kTiB,
                               kGiB,        115 * kMiB + kBlockBytes,
                               7 * kMiB,    edit.size_between(12, 50)};
    return edit.near(choice[edit.prng.below(std::size(choice))]);
}

// Both logs behind the slots, of any size, and the superblock calls them live.
void far_logs(MultiEdit& edit)
{
    const uint64_t bytes = enlarge_members(edit);
    if (edit.chance(1, 2))
        add_slots(edit, bytes / 2);
    const uint64_t intent = log_bytes(edit);
    const uint64_t fsync = log_bytes(edit);
    for (size_t i = 0; i < edit.line_count(); ++i) {
        DiskMember line = edit.line(i);
        const uint64_t at = round_up(slots_end(line), kMiB);
        line.intent_log_offset = edit.near(at);
        line.intent_log_bytes = intent;
        line.fsync_log_offset = edit.near(at + intent);
        line.fsync_log_bytes = fsync;
        edit.set_line(i, line);
    }
    DiskSuperblock head = edit.head();
    head.live_logs = static_cast<uint32_t>(edit.prng.below(4));
    edit.set_head(head);
}

// The place of the map in use, behind the slots, with room for a map that long; zeros fill it.
void far_map(MultiEdit& edit, uint64_t map_bytes)
{
    const uint64_t room = edit.near(std::max<uint64_t>(round_up(map_bytes, kMiB), edit.size_between(20, 28)));
    const uint32_t place = edit.head().map_place;
    for (size_t i = 0; i < edit.line_count(); ++i) {
        DiskMember line = edit.line(i);
        const uint64_t at = round_up(slots_end(line), kMiB);
        line.map_offset[place % 2] = edit.near(at);
        line.map_offset[1 - place % 2] = edit.near(at + room);
        line.map_bytes = room;
        edit.set_line(i, line);
    }
}

void long_map(MultiEdit& edit)
{
    enlarge_members(edit);
    Bytes& map = edit.editor.change_map();
    const uint64_t bytes = std::min<uint64_t>(edit.near(edit.size_between(13, 26)), 80 * kMiB);
    map.resize(std::max<uint64_t>(bytes, sizeof(DiskGroupMap)));
    auto start = structure_at<DiskGroupMap>(map);
    start.bytes = static_cast<uint32_t>(map.size());
    put_structure(map, 0, start);
    DiskSuperblock head = edit.head();
    head.map_bytes = static_cast<uint32_t>(edit.near(map.size()));
    edit.set_head(head);
    far_map(edit, map.size());
}

// A group on the first members, in slots that nobody else has, `slots` of them in each column.
GroupRecord new_group(MultiEdit& edit, const Profile& profile, uint32_t columns, uint64_t slots,
                      std::vector<uint64_t>& next_slot)
{
    GroupRecord group;
    group.address = {edit.head().next_group_address};
    group.content = profile.parity != 0 || edit.chance(3, 4) ? kGroupData : kGroupData | kGroupMetadata;
    group.profile = profile.id;
    group.chunk_bytes = static_cast<uint32_t>(edit.near(uint32_t{1} << edit.prng.between(12, 20)));
    group.data_columns = (columns - profile.parity) / profile.copies;
    group.created_generation = {1};
    const bool pieces = edit.chance(1, 4);
    for (uint32_t i = 0; i < columns; ++i) {
        const DiskMember line = edit.line(i);
        GroupColumn column{{line.member_id}, {}, {}};
        const uint64_t runs = pieces ? std::min<uint64_t>(slots, 20000) : 1;
        for (uint64_t run = 0; run < runs; ++run) {
            const uint64_t count = run + 1 < runs ? 1 : slots - run;
            column.runs.push_back({static_cast<uint32_t>(next_slot[i]), static_cast<uint32_t>(count)});
            next_slot[i] += count;
        }
        group.column_bytes = slots * line.slot_bytes;
        group.columns.push_back(std::move(column));
    }
    DiskSuperblock head = edit.head();
    head.next_group_address = group.address.value + group.span_bytes();
    edit.set_head(head);
    return group;
}

// What the free-space tree says of groups that hold nothing.
void add_summaries(MultiEdit& edit, std::span<const GroupRecord> groups)
{
    const std::vector<size_t> leaves = edit.leaves(kFreeSpaceTree);
    if (leaves.empty())
        return;
    std::vector<LeafEntry> entries = edit.entries(leaves.front());
    for (const GroupRecord& group : groups) {
        if (group.chunk_bytes < kBlockBytes || group.column_bytes % group.chunk_bytes != 0)
            continue;
        DiskGroupSummary summary{};
        summary.free_rows = edit.near(group.column_bytes / kBlockBytes);
        summary.free_stripes = edit.near(group.column_bytes / group.chunk_bytes);
        Bytes payload;
        append_structure(payload, summary);
        entries.push_back(
            {{0, static_cast<uint8_t>(ItemType::kGroupSummary), group.address.value}, std::move(payload)});
    }
    edit.set_entries(leaves.front(), std::move(entries));
}

const Profile& any_profile(MultiEdit& edit, size_t members)
{
    std::vector<const Profile*> fit;
    for (const Profile& profile : profiles())
        if (profile.min_members <= members)
            fit.push_back(&profile);
    return *edit.any_of(fit);
}

uint32_t any_columns(MultiEdit& edit, const Profile& profile, size_t members)
{
    const uint64_t most =
        profile.max_columns == 0 ? members : std::min<uint64_t>(profile.max_columns, members);
    const uint64_t columns =
        edit.prng.between(profile.min_members, std::max<uint64_t>(profile.min_members, most));
    return static_cast<uint32_t>((columns - profile.parity) / profile.copies * profile.copies +
                                 profile.parity);
}

// Counts in the map that are one beside their arrays, now and then.
void misstate_counts(MultiEdit& edit)
{
    Bytes& map = edit.editor.change_map();
    auto start = structure_at<DiskGroupMap>(map);
    start.group_count = static_cast<uint32_t>(edit.near(start.group_count));
    put_structure(map, 0, start);
    if (start.group_count == 0 || map.size() < sizeof start + sizeof(DiskGroup))
        return;
    auto group = structure_at<DiskGroup>(map, sizeof start);
    group.column_count = static_cast<uint32_t>(edit.near(group.column_count));
    group.record_bytes = static_cast<uint32_t>(edit.near(group.record_bytes));
    group.data_columns = static_cast<uint32_t>(edit.near(group.data_columns));
    group.column_bytes = edit.near(group.column_bytes);
    put_structure(map, sizeof start, group);
}

// Slots that no group has yet, on every member.
std::vector<uint64_t> slots_from(MultiEdit& edit)
{
    std::vector<uint64_t> next;
    for (size_t i = 0; i < edit.line_count(); ++i)
        next.push_back(
            i < edit.editor.superblock().members.size() ? edit.editor.superblock().members[i].slot_count : 0);
    return next;
}

// `most` groups more, as large as they may be or as small.
void add_groups(MultiEdit& edit, uint64_t most, uint32_t most_shift)
{
    GroupMap map = edit.editor.groups();
    const size_t before = map.groups.size();
    std::vector<uint64_t> next_slot = slots_from(edit);
    const Profile& profile = any_profile(edit, edit.line_count());
    const uint32_t columns = any_columns(edit, profile, edit.line_count());
    const uint64_t slots = uint64_t{1} << edit.prng.below(most_shift + 1);
    for (uint64_t i = 0; i < most && map.groups.size() < kMaxGroups; ++i) {
        const uint64_t room = edit.line(0).slot_count - std::min(edit.line(0).slot_count.get(), next_slot[0]);
        if (room < slots || edit.head().next_group_address > (uint64_t{1} << 61))
            break;
        map.groups.push_back(new_group(edit, profile, columns, slots, next_slot));
    }
    edit.set_map(map);
    if (edit.chance(3, 4))
        add_summaries(edit, std::span(map.groups).subspan(before));
    if (edit.editor.change_map().size() > edit.line(0).map_bytes)
        far_map(edit, edit.editor.change_map().size());
    misstate_counts(edit);
}

void large_groups(MultiEdit& edit)
{
    add_slots(edit, enlarge_members(edit));
    add_groups(edit, edit.prng.between(1, 4), 20);
}

void many_groups(MultiEdit& edit)
{
    add_slots(edit, enlarge_members(edit));
    add_groups(edit, uint64_t{1} << edit.prng.below(14), 3);
}

// The largest slots that there are, on members of any size.
void large_slots(MultiEdit& edit)
{
    const uint64_t bytes = enlarge_members(edit);
    const uint64_t shift = edit.prng.below(11);
    for (size_t i = 0; i < edit.line_count(); ++i) {
        DiskMember line = edit.line(i);
        line.slot_bytes = edit.near(line.slot_bytes << shift);
        const uint64_t fit = (bytes - line.slots_offset) / std::max<uint64_t>(line.slot_bytes, 1);
        line.slot_count = edit.near(std::min<uint64_t>(fit, UINT32_MAX));
        edit.set_line(i, line);
    }
    // Columns with as many slots as before, in groups that are further apart.
    GroupMap map = edit.editor.groups();
    for (GroupRecord& group : map.groups) {
        group.column_bytes = edit.near(group.column_bytes << shift);
        group.address = {map.groups[0].address.value + ((group.address - map.groups[0].address) << shift)};
    }
    DiskSuperblock head = edit.head();
    head.next_group_address = edit.near(head.next_group_address << shift);
    edit.set_head(head);
    edit.set_map(map);
}

// Many members in the table, most of them there, and groups that stand on them.
void many_members(MultiEdit& edit)
{
    const uint64_t bytes = edit.chance(1, 2) ? enlarge_members(edit) : 0;
    if (bytes != 0)
        add_slots(edit, bytes);
    const size_t wanted =
        edit.prng.between(edit.line_count() + 1, edit.chance(1, 3) ? kMaxMembers : size_t{24});
    const bool some_absent = edit.chance(1, 2);
    DiskMember line = edit.line(edit.line_count() - 1);
    while (edit.line_count() < wanted) {
        line.member_id = line.member_id + 1;
        const bool absent = some_absent && edit.chance(1, 8);
        line.state = static_cast<uint32_t>(edit.near(absent ? 2 : 1));
        line.missing_since = absent ? edit.near(edit.head().generation) : 0;
        edit.prng.fill(line.uuid, sizeof line.uuid);
        edit.set_line(edit.line_count(), line);
        edit.editor.members().push_back(std::make_unique<SimDevice>("more" + std::to_string(line.member_id),
                                                                    edit.editor.members()[0]->size_bytes()));
    }
    DiskSuperblock head = edit.head();
    head.next_member_id = static_cast<uint32_t>(edit.near(line.member_id + 1));
    head.member_count = static_cast<uint32_t>(edit.near(head.member_count));
    edit.set_head(head);
    if (edit.chance(2, 3))
        add_groups(edit, edit.prng.between(1, 30), 12);
}

// A member is being replaced: by one that is there and has columns, or by a new one, which may have some.
void replacement(MultiEdit& edit)
{
    const size_t members = edit.line_count();
    const size_t source = edit.prng.below(members);
    const bool known = edit.chance(1, 4);
    const size_t at = known ? (source + 1 + edit.prng.below(members - 1)) % members : members;
    DiskMember target = edit.line(known ? at : source);
    DiskSuperblock head = edit.head();
    if (!known) {
        target.member_id = head.next_member_id;
        edit.prng.fill(target.uuid, sizeof target.uuid);
        edit.set_line(at, target);
        edit.editor.members().push_back(
            std::make_unique<SimDevice>("target", edit.editor.members()[source]->size_bytes()));
        head = edit.head();
        head.next_member_id = target.member_id + 1;
    }
    head.replace.source = static_cast<uint32_t>(edit.near(edit.line(source).member_id));
    head.replace.target = static_cast<uint32_t>(edit.near(target.member_id));
    head.incompat_features = head.incompat_features | feature_bit("replace");
    edit.set_head(head);
    GroupMap map = edit.editor.groups();
    const bool columns = !known && edit.chance(1, 2);
    for (GroupRecord& group : map.groups)
        if (columns && edit.chance(1, 2))
            group.columns[edit.prng.below(group.columns.size())].member = {target.member_id};
    edit.set_map(map);
}

// Profile, columns and chunks of groups that are there, in agreement with each other.
void other_profiles(MultiEdit& edit)
{
    GroupMap map = edit.editor.groups();
    for (GroupRecord& group : map.groups) {
        if (edit.chance(1, 2))
            continue;
        const Profile& profile = any_profile(edit, group.columns.size());
        group.profile = profile.id;
        group.columns.resize(any_columns(edit, profile, group.columns.size()));
        group.data_columns = static_cast<uint32_t>((group.columns.size() - profile.parity) / profile.copies);
        group.chunk_bytes = uint32_t{1} << edit.prng.between(12, 20);
        group.content = static_cast<uint32_t>(edit.near(group.content));
        group.mapping_version = static_cast<uint32_t>(edit.near(group.mapping_version));
        for (GroupColumn& column : group.columns)
            column.stale_since = {edit.chance(1, 4) ? edit.near(map.generation.value) : 0};
    }
    DiskSuperblock head = edit.head();
    if (edit.chance(1, 2))
        head.next_group_address = head.next_group_address * 4;
    edit.set_head(head);
    edit.set_map(map);
    misstate_counts(edit);
}

// The history as long as it gets, in order.
void epochs(MultiEdit& edit)
{
    DiskSuperblock head = edit.head();
    const uint32_t count = static_cast<uint32_t>(edit.prng.between(1, kEpochHistoryCount));
    uint64_t generation = head.generation;
    for (uint32_t i = 0; i < count; ++i) {
        head.epochs[i] = {edit.near(edit.prng.next() | 1), edit.near(generation)};
        generation -= generation > 1 ? edit.prng.below(2) : 0;
    }
    head.epoch = head.epochs[0].epoch;
    head.epoch_count = static_cast<uint32_t>(edit.near(count));
    if (edit.chance(1, 2))
        head.log_epoch = head.epoch;
    if (edit.chance(1, 2))
        head.live_logs = static_cast<uint32_t>(edit.prng.below(4));
    edit.set_head(head);
}

// Everything that counts commits, together.
void generations(MultiEdit& edit)
{
    DiskSuperblock head = edit.head();
    const uint64_t limit = kMaxGeneration;
    const uint64_t choice[] = {limit,       limit - 1,
                               limit + 1,   limit - edit.prng.below(70),
                               edit.wild(), uint64_t{head.generation} + edit.prng.below(1000)};
    head.generation = choice[edit.prng.below(std::size(choice))];
    if (edit.chance(1, 2))
        head.tree_commits = edit.near(head.generation);
    if (edit.chance(1, 3)) {
        head.next_group_address = edit.near(kMaxVolumeAddress);
        head.next_member_id = static_cast<uint32_t>(edit.near(UINT32_MAX));
    }
    const uint64_t map_generation = edit.chance(1, 2) ? head.generation : head.map_generation;
    head.map_generation = map_generation;
    edit.set_head(head);
    Bytes& map = edit.editor.change_map();
    auto start = structure_at<DiskGroupMap>(map);
    start.generation = edit.near(map_generation);
    put_structure(map, 0, start);
}

constexpr Recipe kSizeRecipes[] = {
    {"far-logs", far_logs, false, false, true},
    {"long-map", long_map, false, false, true},
    {"large-groups", large_groups, false, false, true},
    {"many-groups", many_groups, false, false, true},
    {"large-slots", large_slots, false, false, true},
    {"many-members", many_members, false, false, true},
    {"replacement", replacement, true},
    {"other-profiles", other_profiles, true, false, true},
    {"epochs", epochs, false, false, true},
    {"generations", generations, false, false, true},
};

}  // namespace

std::span<const Recipe> size_recipes()
{
    return kSizeRecipes;
}

}  // namespace cowraid::test
