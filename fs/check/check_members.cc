// SPDX-License-Identifier: MIT
// Members that are not there, and on those that are: both copies of the newest superblock and the copy of the
// block-group map that it names. Older slots of the rings and the other place of the map are history, which a
// power cut may leave torn. So may it the newest superblock, before that is acknowledged: a mount writes it
// again and charges nobody.
#include <algorithm>

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

void check_copies(CheckContext& context, BlockDevice& device, const MemberRecord& record)
{
    const Superblock& chosen = context.volume.superblock();
    const auto add = [&](const char* kind, std::string text) {
        context.findings.add(
            {.kind = kind, .text = std::move(text), .member = record.id.value, .repairable = true});
    };
    for (uint32_t ring = 0; ring < kSuperblockRingCount; ++ring)
        if (const char* fault = superblock_copy_fault(device, chosen, record, ring);
            fault != nullptr && !power_cut_explains(device, chosen, ring))
            add("superblock", check_text("the newest copy in ring %u %s", ring, fault));
    if (const char* fault = map_copy_fault(device, chosen, record); fault != nullptr)
        add("map", check_text("the copy of the block-group map %s", fault));
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
        check_copies(context, *device, record);
    }
}

}  // namespace cowraid
