// SPDX-License-Identifier: MIT
// How many block groups there should be: room ahead of the writers, published by a commit before it is
// needed, and a reserve of metadata so that a full volume can still delete.
#include <algorithm>

#include "base/log.h"
#include "fs/txn/group_planning.h"

namespace cowraid {

namespace {

// Room to keep published ahead of the writers.
constexpr uint64_t kDataAheadBlocks = 512 * kMiB / kBlockBytes;
// Enough for most commits of as much dirty data as there may be.
constexpr uint64_t kMetadataAheadBlocks = 128 * kMiB / kBlockBytes;
constexpr uint64_t kMetadataAheadBlocksMax = kGiB / kBlockBytes;
constexpr uint64_t kReserveBlocksMin = 64 * (kNodeBytes / kBlockBytes);

struct PlanWith {
    Slots slots;
    SlotMembers members;
};

// What data can have at best: a failure within tolerance does not change it, groups made without the members
// that are away lower it.
uint64_t offered_blocks(const Store& store, uint64_t potential)
{
    const SpaceNumbers data = store.allocator.numbers(kGroupData);
    for (const GroupRecord& group : store.volume.map().groups)
        if ((group.content & kGroupData) != 0 &&
            group.created_generation > store.volume.superblock().generation)
            potential += geometry_of(group).data_blocks();  // planned, not published yet
    return data.free_row_blocks + data.partial_row_blocks + data.degraded_row_blocks +
           data.degraded_partial_row_blocks + potential;
}

// With members away a group for nodes takes no slots of the last group of data; those that are kept for nodes
// it takes.
std::optional<uint64_t> potential_after_degraded(const Store& store, uint32_t content, SlotMembers members)
{
    const std::optional<uint64_t> after = store.volume.potential_after(content, members);
    return after.value_or(0) > 0 || store.volume.potential_blocks(kGroupData) == 0 ? after : std::nullopt;
}

// `needed`: the balance under way waits for it, and was let begin because there are slots for it.
bool may_plan(Store& store, uint32_t content, const PlanWith& with, bool needed)
{
    if (with.slots == Slots::kAny)
        return true;
    if (content == kGroupData && store.volume.potential_blocks(kGroupData, with.members) == 0)
        return false;
    if (store.volume.degraded()) {
        const std::optional<uint64_t> after = potential_after_degraded(store, content, with.members);
        return after && store.ledger.try_lower_room(offered_blocks(store, *after));
    }
    // Beyond what is kept a group may cost data one of its own on each member that it is on.
    if (content == kGroupData || store.volume.keeps_slots_for(content, store.volume.profiles()))
        return true;
    if (!needed &&
        store.ledger.data_available() <= data_beside_nodes(store, store.volume.profile_for(content)))
        return false;
    if (store.volume.potential_blocks(content, with.members) == 0)
        return false;
    // There may be no groups of data just now: all that writers were told is in slots.
    return store.ledger.try_lower_room(
        offered_blocks(store, store.volume.potential_after(content, with.members).value_or(0)));
}

// Until `room` is `wanted_blocks`, or there are no slots: the budget tells writers.
Status plan_until(Store& store, uint32_t content, uint64_t wanted_blocks, const PlanWith& with,
                  uint64_t& room, bool needed = false)
{
    while (room < wanted_blocks && may_plan(store, content, with, needed)) {
        const uint64_t before = store.volume.map().groups.size();
        const Status planned = store.volume.plan_group(content, with.members, with.slots, store.allocator);
        if (planned.err() == Err::kNoSpace)
            return {};
        CW_TRY(planned);
        room += geometry_of(store.volume.map().groups[before]).data_blocks();
    }
    return {};
}

// Opens degraded groups until free rows come to `wanted_blocks`, or with partial rows do.
void reopen_until(Store& store, uint32_t content, uint64_t wanted_blocks, uint64_t& rows, uint64_t& partial)
{
    if (rows >= wanted_blocks)
        return;
    std::vector<GroupNumbers> groups = store.allocator.group_numbers(content);
    const auto reopen = [&](GroupNumbers& group) {
        store.volume.reopen_group(group.address, store.allocator);
        rows += group.free_row_blocks;
        partial += group.partial_row_blocks;
        group.degraded = false;
    };
    for (GroupNumbers& group : groups)
        if (rows < wanted_blocks && group.degraded && !group.broken && group.free_row_blocks > 0)
            reopen(group);
    for (GroupNumbers& group : groups)
        if (rows + partial < wanted_blocks && group.degraded && !group.broken && group.partial_row_blocks > 0)
            reopen(group);
}

}  // namespace

uint64_t data_beside_nodes(const Store& store, const Profile& profile)
{
    const uint64_t groups = std::max<uint64_t>(1, store.volume.array().groups().size());
    return (profile.copies + profile.parity) * store.allocator.numbers(kGroupData).total_blocks / groups;
}

namespace {

// What the largest operation takes in nodes of that content, with what it must leave.
uint64_t largest_change_blocks(const Store& store, uint32_t content)
{
    const MetadataRoom room = store.ledger.metadata_room();
    const NodeNeed need = node_need(room, node_bound(room, kLargestChange), Leave::kReserve);
    if (!nodes_apart(store))
        return need.all_blocks;
    return content == kGroupMetadata ? need.file_blocks : need.system_blocks;
}

}  // namespace

bool is_in_balance(const Store& store, const GroupNumbers& numbers)
{
    const Superblock& superblock = store.volume.superblock();
    if (superblock.balance.state != BalanceState::kRunning ||
        numbers.live_blocks * 100 > superblock.balance.usage_max * numbers.total_blocks)
        return false;
    const Ref<const ArrayGroup> group = store.volume.array().group_at(numbers.address);
    return group &&
           store.volume.selects(superblock.balance, {superblock.data_profile, superblock.metadata_profile},
                                group->record);
}

uint64_t lasting_room(const Store& store, uint32_t content)
{
    const SpaceNumbers numbers = store.allocator.numbers(content);
    return numbers.free_row_blocks - std::min(numbers.free_row_blocks, numbers.avoided_row_blocks);
}

uint64_t nodes_to_move(const Store& store, uint32_t content)
{
    if (store.volume.superblock().balance.state != BalanceState::kRunning)
        return 0;
    uint64_t least = UINT64_MAX;
    for (const GroupNumbers& numbers : store.allocator.group_numbers(content))
        if (!numbers.broken && store.stuck_groups.count(numbers.address) == 0 &&
            is_in_balance(store, numbers))
            least = std::min(least, numbers.live_blocks);
    return least == UINT64_MAX ? 0 : least + least / 4;
}

bool nodes_apart(const Store& store)
{
    const uint64_t all = store.allocator.numbers(kGroupMetadata | kGroupSystem).total_blocks;
    return !store.volume.system_is_metadata() || store.allocator.numbers(kGroupMetadata).total_blocks < all ||
           store.allocator.numbers(kGroupSystem).total_blocks < all;
}

// For a commit to copy and split every node, within limits.
uint64_t metadata_ahead(const Store& store, uint32_t content, uint64_t leaving_blocks)
{
    const SpaceNumbers numbers = store.allocator.numbers(content);
    const uint64_t wanted =
        std::max(kMetadataAheadBlocks, std::min(2 * numbers.used_blocks, kMetadataAheadBlocksMax));
    // On a small volume one group is a large share. Up to what is kept for metadata anyway half of that is
    // free; then the next waits until half of the last is used. With members away nothing is kept for groups
    // without them: those there are go on being used when there are no slots for more. There the next one
    // must not come too late: data is refused where the largest operation has no room.
    const bool degraded = store.volume.degraded();
    const uint64_t kept = degraded ? 0 : store.volume.metadata_kept_blocks(content);
    const uint64_t least = degraded ? largest_change_blocks(store, content) : 0;
    const uint64_t whole = store.allocator.numbers(content).whole_blocks;
    const uint64_t share = std::max(whole - std::min(whole, leaving_blocks), kept) / 2;
    return std::max({kReserveBlocksMin, least, std::min(wanted, share)});
}

// A share of the volume, so that slots stay free for what comes: metadata, or other members' places when one
// is lost.
uint64_t data_ahead(const Store& store)
{
    const uint64_t potential = store.volume.potential_blocks(kGroupData);
    return std::min(kDataAheadBlocks, (store.allocator.numbers(kGroupData).total_blocks + potential) / 8);
}

namespace {

// In groups that were planned for a balance as well, which the next map says of first. One for nodes of all
// trees counts for both contents.
uint64_t planned_room(const Store& store, uint32_t content)
{
    uint64_t blocks = 0;
    for (const GroupRecord& group : store.volume.map().groups)
        if ((group.content & content) != 0 && group.created_generation > store.volume.superblock().generation)
            blocks += geometry_of(group).data_blocks();
    return blocks;
}

// Groups with all their members first. Of the others what is free counts as there, ensure_room() opens them;
// only where that is too little the members that are away take part.
Status plan_nodes_ahead(Store& store, uint32_t content)
{
    const uint64_t moving = nodes_to_move(store, content);
    const uint64_t ahead = metadata_ahead(store, content) + moving;
    uint64_t room = lasting_room(store, content) + (moving > 0 ? planned_room(store, content) : 0);
    CW_TRY(plan_until(store, content, ahead, {Slots::kBesideKept, SlotMembers::kPresent}, room));
    room += store.allocator.numbers(content).degraded_row_blocks;
    return plan_until(store, content, ahead, {Slots::kBesideKept, SlotMembers::kAll}, room);
}

// What the next group of nodes that the balance empties waits for, where it has room nowhere else. A group
// for system trees is a mirror on few members, and comes first: one of files takes a slot of every member.
Status plan_nodes_for_balance(Store& store)
{
    for (const uint32_t content : {kGroupSystem, kGroupMetadata}) {
        const uint64_t nodes = nodes_to_move(store, content);
        if (nodes == 0)
            continue;
        uint64_t room = lasting_room(store, content) + planned_room(store, content);
        // What is kept ahead of commits grows with the group.
        CW_TRY(plan_until(store, content, metadata_ahead(store, content) * 2 / 3 + nodes * 4 / 3,
                          {Slots::kBesideKept, SlotMembers::kPresent}, room, true));
    }
    return {};
}

}  // namespace

void sort_degraded_groups(Store& store)
{
    const Array& array = store.volume.array();
    for (const Ref<const ArrayGroup>& group : array.groups())
        if (array.missing_columns(*group) > 0)
            store.allocator.degrade_group(group->record.address);
    const SpaceNumbers room = store.allocator.numbers(kAllContent);
    if (room.degraded_row_blocks + room.degraded_partial_row_blocks == 0)
        return;
    for (const GroupNumbers& numbers : store.allocator.group_numbers(kAllContent)) {
        const Ref<const ArrayGroup> group = array.group_at(numbers.address);
        if (numbers.degraded && group && array.missing_columns(*group) == 0)
            store.volume.reopen_group(numbers.address, store.allocator);
    }
}

Status plan_ahead(Store& store)
{
    sort_degraded_groups(store);
    CW_TRY(plan_nodes_for_balance(store));
    CW_TRY(plan_nodes_ahead(store, kGroupMetadata));
    if (nodes_apart(store))
        CW_TRY(plan_nodes_ahead(store, kGroupSystem));
    uint64_t room = lasting_room(store, kGroupData);
    const uint64_t ahead = data_ahead(store);
    if (room >= ahead / 2)
        return {};
    return plan_until(store, kGroupData, ahead, {Slots::kBesideKept, SlotMembers::kPresent}, room);
}

Status plan_for(Store& store, uint64_t wanted_blocks, uint64_t taken_blocks)
{
    const uint64_t lasting = lasting_room(store, kGroupData);
    const uint64_t leaving = store.allocator.numbers(kGroupData).free_row_blocks - lasting;
    uint64_t rows = lasting;
    CW_TRY(plan_until(store, kGroupData, wanted_blocks, {Slots::kBesideKept, SlotMembers::kPresent}, rows));
    rows += leaving;  // what writers were told may go there, too
    const bool whole_rows_only = store.service.whole_rows_only();
    uint64_t partial = whole_rows_only ? 0 : store.allocator.numbers(kGroupData).partial_row_blocks;
    uint64_t more_partial = 0;
    reopen_until(store, kGroupData, taken_blocks, rows, whole_rows_only ? more_partial : partial);
    return plan_until(store, kGroupData, taken_blocks - std::min(taken_blocks, partial),
                      {Slots::kAny, SlotMembers::kAll}, rows);
}

void open_node_groups(Store& store, uint64_t node_blocks)
{
    for (const uint32_t content : {kGroupMetadata, kGroupSystem}) {
        uint64_t rows = store.allocator.numbers(content).free_row_blocks;
        uint64_t partial = 0;
        reopen_until(store, content, node_blocks, rows, partial);
    }
}

namespace {

uint64_t reserve_of(const SpaceNumbers& numbers)
{
    return std::clamp(numbers.total_blocks / 8, kReserveBlocksMin, kMetadataReserveBlocksMax);
}

MetadataRoom read_metadata_room(const Store& store)
{
    const SpaceNumbers metadata = store.allocator.numbers(kGroupMetadata);
    const SpaceNumbers system = store.allocator.numbers(kGroupSystem);
    const SpaceNumbers all = store.allocator.numbers(kGroupMetadata | kGroupSystem);
    MetadataRoom room;
    room.free_blocks = metadata.free_row_blocks + metadata.degraded_row_blocks;
    room.system_free_blocks = system.free_row_blocks + system.degraded_row_blocks;
    room.all_free_blocks = all.free_row_blocks + all.degraded_row_blocks;
    room.reserve_blocks = reserve_of(metadata);
    if (nodes_apart(store))
        room.system_reserve_blocks = reserve_of(system);
    room.used_nodes = all.used_blocks / (kNodeBytes / kBlockBytes);
    const SpaceNumbers data = store.allocator.numbers(kGroupData);
    const uint64_t stripes = data.free_stripe_blocks + data.degraded_stripe_blocks;
    room.stripe_blocks = stripes - std::min(stripes, store.moving_blocks.load());
    room.blocks_per_stripe = UINT64_MAX;
    room.partial_row_blocks = data.partial_row_blocks + data.degraded_partial_row_blocks;
    room.log_rows = store.volume.intent_log_rows();
    room.has_moved_blocks = store.volume.may_have_moved_blocks();
    room.has_frames = store.volume.may_have_frames() || store.live.compression.load().on;
    room.makes_frames = room.has_frames || store.volume.may_have_inode_flags();
    for (const Ref<const ArrayGroup>& group : store.volume.array().groups()) {
        room.address_blocks += group->record.span_bytes() / kBlockBytes;
        if ((group->record.content & (kGroupMetadata | kGroupSystem)) != 0)
            room.node_address_blocks += group->record.span_bytes() / kBlockBytes;
        if ((group->record.content & kGroupMetadata) != 0 && group->geometry.parity > 0) {
            room.nodes_have_parity = true;
            room.nodes_per_row = std::max<uint64_t>(room.nodes_per_row, group->geometry.data_columns);
        }
        ++room.group_count;
        if ((group->record.content & kGroupData) != 0) {
            room.blocks_per_stripe =
                std::min<uint64_t>(room.blocks_per_stripe, group->geometry.stripe_data_blocks());
            room.parity = std::max<uint64_t>(room.parity, group->geometry.parity);
        }
    }
    return room;
}

}  // namespace

std::optional<uint64_t> potential_with_nodes(const Store& store)
{
    const uint64_t potential = store.volume.potential_blocks(kGroupData);
    const uint64_t returning = store.allocator.numbers(kGroupMetadata).pinned_blocks;
    if (store.ledger.fits_alone(kLargestChange, returning))
        return potential;
    for (const GroupNumbers& group : store.allocator.group_numbers(kGroupMetadata | kGroupSystem))
        if (group.planned)
            return potential;
    if (store.volume.degraded())
        for (const SlotMembers members : {SlotMembers::kPresent, SlotMembers::kAll})
            if (const std::optional<uint64_t> after =
                    potential_after_degraded(store, kGroupMetadata, members))
                return std::min(potential, *after);
    return std::nullopt;
}

uint64_t narrowing_blocks(const Store& store, Emptied emptied)
{
    if (!store.volume.degraded())
        return 0;
    const bool all = emptied == Emptied::kAll;
    std::vector<VolumeAddress> leaving;
    for (const GroupNumbers& group : store.allocator.group_numbers(kGroupData)) {
        const bool offered = !group.closed && group.pinned_blocks == 0;
        if (group.live_blocks > 0 || group.planned || group.broken || !(offered || all))
            continue;
        const Ref<const ArrayGroup> placed = store.volume.array().group_at(group.address);
        if (placed && store.volume.array().missing_columns(*placed) > 0)
            leaving.push_back(group.address);
    }
    return store.volume.narrowing_blocks(std::move(leaving), all);
}

bool give_up_node_room(Store& store, uint32_t content, uint64_t blocks)
{
    const MetadataRoom before = store.ledger.metadata_room();
    MetadataRoom room = before;
    const auto lower = [&](uint64_t& free_blocks) {
        free_blocks -= std::min(free_blocks, blocks);
    };
    if ((content & kGroupMetadata) != 0)
        lower(room.free_blocks);
    if ((content & kGroupSystem) != 0)
        lower(room.system_free_blocks);
    lower(room.all_free_blocks);
    store.ledger.set_metadata_room(room);  // first, so that no operation is admitted by the old one
    const bool given = store.ledger.try_reserve_changes({}, Leave::kReserve);
    if (!given)
        store.ledger.set_metadata_room(before);
    return given;
}

void refresh_budget(Store& store, uint64_t taken_blocks)
{
    const uint64_t offered = offered_blocks(store, store.volume.potential_blocks(kGroupData));
    const uint64_t less = kDataSlackBlocks + narrowing_blocks(store, Emptied::kOffered);
    store.ledger.data_taken(taken_blocks, offered - std::min(offered, less));
    store.ledger.set_metadata_room(read_metadata_room(store));
}

}  // namespace cowraid
