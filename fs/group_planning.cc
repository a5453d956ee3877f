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
// Two commits of as much dirty data as there may be, in single blocks.
constexpr uint64_t kMetadataAheadBlocks = 128 * kMiB / kBlockBytes;
constexpr uint64_t kMetadataAheadBlocksMax = kGiB / kBlockBytes;
constexpr uint64_t kReserveBlocksMax = 16 * kMiB / kBlockBytes;
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

Status plan_until(FilesystemCore& core, uint32_t content, uint64_t wanted_blocks)
{
    uint64_t room = room_of(core, content);
    while (room < wanted_blocks) {
        // Slots that metadata will need are for it, unless data already taken has no other place.
        if (content == kGroupData && core.volume->potential_blocks(kGroupData) == 0 &&
            !core.volume->degraded())
            return {};
        const Status planned = plan_one(core, content, room);
        if (planned.err() == Err::kNoSpace)
            return {};  // the budget tells writers
        CW_TRY(planned);
    }
    return {};
}

// Free room that trees of that content should have: for a commit that copies and splits every node.
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
    CW_TRY(plan_until(core, kGroupMetadata, metadata_ahead(core, kGroupMetadata)));
    if (!core.volume->system_is_metadata())
        CW_TRY(plan_until(core, kGroupSystem, metadata_ahead(core, kGroupSystem)));
    const uint64_t potential = core.volume->potential_blocks(kGroupData);
    // A share of the volume, so that slots stay free for what comes: metadata, or other members' places when
    // one is lost.
    const uint64_t data_total = core.allocator.numbers(kGroupData).total_blocks;
    const uint64_t ahead = std::min(kDataAheadBlocks, (data_total + potential) / 8);
    if (room_of(core, kGroupData) < ahead / 2 && potential > 0)
        CW_TRY(plan_until(core, kGroupData, ahead));
    if (core.volume->degraded() && !has_whole_metadata_groups(core)) {
        open_degraded_groups(core, kGroupData | kGroupMetadata | kGroupSystem);
        core.last_commit = true;
    }
    return {};
}

Status plan_for(FilesystemCore& core, uint64_t data_blocks)
{
    return plan_until(core, kGroupData, data_blocks);
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
    room.reserve_blocks = std::clamp(metadata.total_blocks / 8, kReserveBlocksMin, kReserveBlocksMax);
    room.used_nodes = used / (kNodeBytes / kBlockBytes);
    room.stripe_blocks = core.allocator.numbers(kGroupData).free_stripe_blocks;
    room.blocks_per_stripe = UINT64_MAX;
    for (const Ref<const ArrayGroup>& group : core.volume->array().groups()) {
        room.address_blocks += group->record.span_bytes() / kBlockBytes;
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

void refresh_budget(FilesystemCore& core)
{
    const SpaceNumbers data = core.allocator.numbers(kGroupData);
    const uint64_t offered =
        data.free_row_blocks + data.hole_blocks + core.volume->potential_blocks(kGroupData);
    // A flush rounds up to whole rows once; two may be under way.
    constexpr uint64_t kSlack = 2 * 64;
    core.space.set_data_room(offered > kSlack ? offered - kSlack : 0);
    core.space.set_metadata_room(read_metadata_room(core));
}

}  // namespace cowraid
