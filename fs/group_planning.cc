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
constexpr uint64_t kMetadataAheadBlocks = 32 * kMiB / kBlockBytes;
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

// Slots left for metadata to grow into as the data does.
uint64_t headroom_blocks(uint64_t data_potential)
{
    return data_potential / 32;
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
        const Status planned = plan_one(core, content, room);
        if (planned.err() == Err::kNoSpace)
            return {};  // the budget tells writers
        CW_TRY(planned);
    }
    return {};
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
    const uint64_t used = core.allocator.numbers(kGroupMetadata).used_blocks;
    const uint64_t metadata_wanted = std::max(kMetadataAheadBlocks, used / 2);
    // On a small volume one metadata group is a large share: the next waits until half of the last is used.
    const uint64_t total = core.allocator.numbers(kGroupMetadata).total_blocks;
    // With all of them closed there is no share to go by.
    if (metadata_room(core) < std::max(kReserveBlocksMin, std::min(metadata_wanted, total / 2))) {
        CW_TRY(plan_until(core, kGroupMetadata, metadata_room(core) + 1));
        if (!core.volume->system_is_metadata())
            CW_TRY(plan_until(core, kGroupSystem, room_of(core, kGroupSystem) + 1));
    }
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

void refresh_budget(FilesystemCore& core)
{
    const SpaceNumbers data = core.allocator.numbers(kGroupData);
    const uint64_t potential = core.volume->potential_blocks(kGroupData);
    const uint64_t offered = data.free_row_blocks + data.hole_blocks + potential;
    // A flush rounds up to whole rows once; two may be under way.
    const uint64_t slack = headroom_blocks(potential) + 2 * 64;
    core.space.set_data_room(offered > slack ? offered - slack : 0);
    const SpaceNumbers metadata = core.allocator.numbers(kGroupMetadata);
    const uint64_t reserve = std::clamp(metadata.total_blocks / 8, kReserveBlocksMin, kReserveBlocksMax);
    uint64_t used = metadata.used_blocks;
    if (!core.volume->system_is_metadata())
        used += core.allocator.numbers(kGroupSystem).used_blocks;
    core.space.set_metadata_room(metadata_room(core), used / (kNodeBytes / kBlockBytes), reserve);
}

}  // namespace cowraid
