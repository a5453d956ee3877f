// SPDX-License-Identifier: MIT
// How many block groups there should be: room ahead of the writers, published by a commit before it is
// needed, and a reserve of metadata so that a full volume can still delete.
#include <algorithm>

#include "base/log.h"
#include "fs/commit.h"

namespace cowraid {

namespace {

// Room to keep published ahead of the writers.
constexpr uint64_t kDataAheadBlocks = 512 * kMiB / kBlockBytes;
// Enough for most commits of as much dirty data as there may be.
constexpr uint64_t kMetadataAheadBlocks = 128 * kMiB / kBlockBytes;
constexpr uint64_t kMetadataAheadBlocksMax = kGiB / kBlockBytes;
constexpr uint64_t kReserveBlocksMin = 64 * (kNodeBytes / kBlockBytes);

// Free room of one content, published or planned.
uint64_t room_of(const FilesystemCore& core, uint32_t content)
{
    return core.allocator.numbers(content).free_row_blocks;
}

// Room for the smaller of metadata and system trees; they share groups unless metadata has parity.
uint64_t metadata_room(const FilesystemCore& core)
{
    const uint64_t metadata = room_of(core, kGroupMetadata);
    return core.volume->system_is_metadata() ? metadata : std::min(metadata, room_of(core, kGroupSystem));
}

Status plan_one(FilesystemCore& core, uint32_t content, uint64_t& room)
{
    const uint64_t before = core.volume->map().groups.size();
    CW_TRY(core.volume->plan_group(content, core.allocator));
    room += geometry_of(core.volume->map().groups[before]).data_blocks();
    return {};
}

// Which slots a group may take.
enum class Slots : uint8_t {
    kBesideKept,  // data: not those that metadata will need; metadata: not those that data was promised
    kAny,
};

bool may_plan(const FilesystemCore& core, uint32_t content, Slots slots)
{
    if (slots == Slots::kAny)
        return true;
    if (content == kGroupData)
        return core.volume->potential_blocks(kGroupData) > 0;
    // With a member missing the groups there were are closed: what the next commits need is needed at once.
    if (core.volume->degraded() && room_of(core, content) < kReserveBlocksMin)
        return true;
    // Beyond what is kept a group may cost data one of its own on each member that it is on.
    if (core.allocator.numbers(content).total_blocks < core.volume->metadata_kept_blocks(content))
        return true;
    const uint64_t groups = std::max<uint64_t>(1, core.volume->array().groups().size());
    const uint64_t copies =
        core.volume->profile_for(content).copies + core.volume->profile_for(content).parity;
    return core.space.data_available() > copies * core.allocator.numbers(kGroupData).total_blocks / groups;
}

Status plan_until(FilesystemCore& core, uint32_t content, uint64_t wanted_blocks, Slots slots)
{
    uint64_t room = room_of(core, content);
    while (room < wanted_blocks && may_plan(core, content, slots)) {
        const Status planned = plan_one(core, content, room);
        if (planned.err() == Err::kNoSpace)
            return {};  // the budget tells writers
        CW_TRY(planned);
    }
    return {};
}

// Free room that trees of that content should have: for a commit to copy and split every node, within limits.
uint64_t metadata_ahead(const FilesystemCore& core, uint32_t content)
{
    const SpaceNumbers numbers = core.allocator.numbers(content);
    const uint64_t wanted =
        std::max(kMetadataAheadBlocks, std::min(2 * numbers.used_blocks, kMetadataAheadBlocksMax));
    // On a small volume one group is a large share. Up to what is kept for metadata anyway half of that is
    // free; then the next waits until half of the last is used. With all of them closed there is no share.
    const uint64_t kept = core.volume->metadata_kept_blocks(content);
    const uint64_t share = std::max(numbers.total_blocks, kept) / 2;
    return std::max(kReserveBlocksMin, std::min(wanted, share));
}

}  // namespace

void close_degraded_groups(FilesystemCore& core)
{
    for (const Ref<const ArrayGroup>& group : core.volume->array().groups())
        if (core.volume->array().missing_columns(*group) > 0)
            core.allocator.set_group_state(group->record.address, Allocator::GroupState::kClosed);
}

namespace {

// Whether there are metadata and system groups, published or planned, with all their members. Without a
// whole data group the volume can still be changed: writing data says that there is no space.
bool has_whole_metadata_groups(const FilesystemCore& core)
{
    uint32_t missing = kGroupMetadata | kGroupSystem;
    for (const Ref<const ArrayGroup>& group : core.volume->array().groups())
        if (core.volume->array().missing_columns(*group) == 0)
            missing &= ~group->record.content;
    return missing == 0;
}

}  // namespace

void open_degraded_groups(FilesystemCore& core, uint32_t content)
{
    for (const Ref<const ArrayGroup>& group : core.volume->array().groups())
        if ((group->record.content & content) != 0 && core.volume->array().missing_columns(*group) > 0 &&
            !core.remap.is_emptying(group->record.address))
            core.allocator.set_group_state(group->record.address, Allocator::GroupState::kOpen);
}

Status plan_ahead(FilesystemCore& core)
{
    if (core.last_commit)
        return {};
    if (core.volume->member_failed_since_commit())
        close_degraded_groups(core);
    CW_TRY(plan_until(core, kGroupMetadata, metadata_ahead(core, kGroupMetadata), Slots::kBesideKept));
    if (!core.volume->system_is_metadata())
        CW_TRY(plan_until(core, kGroupSystem, metadata_ahead(core, kGroupSystem), Slots::kBesideKept));
    const uint64_t potential = core.volume->potential_blocks(kGroupData);
    // A share of the volume, so that slots stay free for what comes: metadata, or other members' places when
    // one is lost.
    const uint64_t data_total = core.allocator.numbers(kGroupData).total_blocks;
    const uint64_t ahead = std::min(kDataAheadBlocks, (data_total + potential) / 8);
    if (room_of(core, kGroupData) < ahead / 2 && potential > 0)
        CW_TRY(plan_until(core, kGroupData, ahead, Slots::kBesideKept));
    if (core.volume->degraded() && !has_whole_metadata_groups(core)) {
        open_degraded_groups(core, kGroupData | kGroupMetadata | kGroupSystem);
        core.last_commit = true;
    }
    return {};
}

Status plan_for(FilesystemCore& core, uint64_t wanted_blocks, uint64_t taken_blocks)
{
    CW_TRY(plan_until(core, kGroupData, wanted_blocks, Slots::kBesideKept));
    const uint64_t holes = core.whole_rows_only ? 0 : core.allocator.numbers(kGroupData).hole_blocks;
    return plan_until(core, kGroupData, taken_blocks - std::min(taken_blocks, holes), Slots::kAny);
}

namespace {

MetadataRoom read_metadata_room(const FilesystemCore& core)
{
    const SpaceNumbers metadata = core.allocator.numbers(kGroupMetadata);
    uint64_t used = metadata.used_blocks;
    if (!core.volume->system_is_metadata())
        used += core.allocator.numbers(kGroupSystem).used_blocks;
    MetadataRoom room;
    room.free_blocks = metadata_room(core);
    room.reserve_blocks = std::clamp(metadata.total_blocks / 8, kReserveBlocksMin, kMetadataReserveBlocksMax);
    room.used_nodes = used / (kNodeBytes / kBlockBytes);
    const uint64_t stripes = core.allocator.numbers(kGroupData).free_stripe_blocks;
    room.stripe_blocks = stripes - std::min(stripes, core.cleaner.reserved_blocks());
    room.blocks_per_stripe = UINT64_MAX;
    room.has_moved_blocks = core.volume->may_have_moved_blocks();
    for (const Ref<const ArrayGroup>& group : core.volume->array().groups()) {
        room.address_blocks += group->record.span_bytes() / kBlockBytes;
        if ((group->record.content & (kGroupMetadata | kGroupSystem)) != 0)
            room.node_address_blocks += group->record.span_bytes() / kBlockBytes;
        if ((group->record.content & kGroupMetadata) != 0 && group->geometry.parity > 0)
            room.nodes_have_parity = true;
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

void refresh_budget(FilesystemCore& core, uint64_t taken_blocks)
{
    const SpaceNumbers data = core.allocator.numbers(kGroupData);
    const uint64_t offered =
        data.free_row_blocks + data.hole_blocks + core.volume->potential_blocks(kGroupData);
    // A flush rounds up to whole rows once; two may be under way.
    constexpr uint64_t kSlack = 2 * 64;
    core.space.data_taken(taken_blocks, offered > kSlack ? offered - kSlack : 0);
    core.space.set_metadata_room(read_metadata_room(core));
}

}  // namespace cowraid
