// SPDX-License-Identifier: MIT
// Members that are not there, and on those that are: both copies of the newest superblock and the copy of the
// block-group map that it names. Older slots of the rings and the other place of the map are history, which a
// power cut may leave torn.
#include <algorithm>

#include "base/buffer.h"
#include "device/block_device.h"
#include "device/superblock_store.h"
#include "fs/check/check_passes.h"

namespace cowraid {

namespace {

// Why a member is a finding itself, or empty.
std::string absence_of(CheckContext& context, const MemberRecord& record)
{
    const std::string reason = context.volume.reason_of(record.id).text;
    if (context.volume.members().device(record.id) == nullptr)
        return reason;
    return record.state == MemberState::kPresent ? "" : reason + "; a mount lets it take part again";
}

// What is wrong with a copy of the superblock, or null.
const char* examine_superblock(const Superblock& chosen, const MemberRecord& record,
                               const AlignedBuffer& slot)
{
    const Result<Superblock> copy = decode_superblock(slot.span());
    if (!copy.ok())
        return "is damaged, or torn by a power cut";
    if (copy->volume_uuid != chosen.volume_uuid || copy->member_id != record.id)
        return "belongs to another member";
    if (copy->generation != chosen.generation)
        return "is of an older commit";
    const MapRef& map = copy->map;
    const bool same_map = map.generation == chosen.map.generation && map.checksum == chosen.map.checksum &&
                          map.bytes == chosen.map.bytes && map.place == chosen.map.place;
    return copy->root == chosen.root && same_map ? nullptr : "contradicts those of other members";
}

void check_rings(CheckContext& context, BlockDevice& device, const MemberRecord& record)
{
    const Superblock& chosen = context.volume.superblock();
    const uint64_t slot = chosen.generation.value % kSuperblockSlotCount;
    AlignedBuffer buffer(kSuperblockSlotBytes);
    for (uint32_t ring = 0; ring < kSuperblockRingCount; ++ring) {
        const uint64_t offset = kSuperblockRingOffset[ring] + slot * kSuperblockSlotBytes;
        const char* fault = read_device(device, {offset}, buffer.span()).ok()
                                ? examine_superblock(chosen, record, buffer)
                                : "cannot be read";
        if (fault != nullptr)
            context.findings.add({.kind = "superblock",
                                  .text = check_text("the newest copy in ring %u %s", ring, fault),
                                  .member = record.id.value,
                                  .repairable = true});
    }
}

void check_map(CheckContext& context, BlockDevice& device, const MemberRecord& record)
{
    const Superblock& chosen = context.volume.superblock();
    AlignedBuffer buffer(chosen.map.bytes);
    const char* fault = nullptr;
    if (chosen.map.bytes > record.map_bytes ||
        !read_device(device, {record.map_offset[chosen.map.place]}, buffer.span()).ok())
        fault = "the copy of the block-group map cannot be read";
    else if (!decode_group_map(buffer.span(), chosen.map, chosen).ok())
        fault = "the copy of the block-group map is damaged";
    if (fault != nullptr)
        context.findings.add({.kind = "map", .text = fault, .member = record.id.value, .repairable = true});
}

}  // namespace

void check_members(CheckContext& context)
{
    for (const GroupRecord& group : context.volume.map().groups)
        context.report().stale_columns += static_cast<uint64_t>(std::count_if(
            group.columns.begin(), group.columns.end(), [](const auto& column) { return column.stale(); }));
    for (const MemberRecord& record : context.volume.superblock().members) {
        std::string absence = absence_of(context, record);
        if (!absence.empty()) {
            // More members missing than a group tolerates, and the volume would not have been opened.
            context.findings.add({.kind = "member",
                                  .text = std::move(absence),
                                  .member = record.id.value,
                                  .repairable = true});
            continue;
        }
        BlockDevice* device = context.volume.members().device(record.id);
        check_rings(context, *device, record);
        check_map(context, *device, record);
    }
}

}  // namespace cowraid
