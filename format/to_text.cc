// SPDX-License-Identifier: MIT
#include "format/to_text.h"

#include <cinttypes>

#include "base/print.h"
#include "format/feature_table.h"
#include "format/profile.h"

namespace cowraid {

const char* member_state_name(MemberState state)
{
    switch (state) {
    case MemberState::kPresent:
        return "present";
    case MemberState::kMissing:
        return "missing";
    case MemberState::kFailed:
        return "failed";
    case MemberState::kSpare:
        return "spare";
    }
    return "unknown";
}

std::string group_content_name(uint32_t content)
{
    static constexpr struct {
        uint32_t bit;
        const char* name;
    } kNames[] = {{kGroupData, "data"}, {kGroupMetadata, "metadata"}, {kGroupSystem, "system"}};
    std::string text;
    for (const auto& known : kNames) {
        if ((content & known.bit) != 0)
            text += (text.empty() ? "" : "|") + std::string(known.name);
        content &= ~known.bit;
    }
    if (content != 0 || text.empty())
        text += (text.empty() ? "" : "|") + text_format("0x%x", content);
    return text;
}

static const char* profile_name(ProfileId id)
{
    const Profile* profile = find_profile(id);
    return profile == nullptr ? "unknown" : profile->name;
}

std::string to_text(const BlockRef& ref)
{
    if (!ref.address.valid())
        return "none";
    std::string text = text_format("address %" PRIu64 " generation %" PRIu64 " checksums", ref.address.value,
                                   ref.generation.value);
    for (const Checksum checksum : ref.checksums)
        text += text_format(" %016" PRIx64, checksum);
    return text;
}

std::string to_text(const MapRef& map)
{
    return text_format("place %u bytes %u generation %" PRIu64 " checksum %016" PRIx64, map.place, map.bytes,
                       map.generation.value, map.checksum);
}

std::string to_text(const EpochRecord& epoch)
{
    return text_format("%016" PRIx64 " from generation %" PRIu64, epoch.epoch, epoch.generation.value);
}

std::string to_text(const BalanceRecord& balance)
{
    std::string text = text_format("%s %s usage %u before %" PRIu64 " bytes %" PRIu64,
                                   balance.state == BalanceState::kPaused ? "paused" : "running",
                                   group_content_name(balance.content & kAllContent).c_str(),
                                   balance.usage_max, balance.before.value, balance.total_bytes);
    if (balance.shrink_bytes != 0)
        text += text_format(" member %u to %" PRIu64, balance.member.value, balance.shrink_bytes);
    return text;
}

std::string to_text(const MemberRecord& member)
{
    std::string text =
        text_format("%u %s uuid %s bytes %" PRIu64, member.id.value, member_state_name(member.state),
                    uuid_text(member.uuid).c_str(), member.size_bytes);
    if (member.missing_since.value != 0)
        text += text_format(" missing since %" PRIu64, member.missing_since.value);
    text += text_format(" slots %" PRIu64 " * %" PRIu64 " at %" PRIu64, member.slot_count, member.slot_bytes,
                        member.slots_offset);
    text += text_format(" maps %" PRIu64 " at %" PRIu64 ", %" PRIu64, member.map_bytes, member.map_offset[0],
                        member.map_offset[1]);
    text +=
        text_format(" intent log %" PRIu64 " at %" PRIu64, member.intent_log_bytes, member.intent_log_offset);
    text +=
        text_format(" fsync log %" PRIu64 " at %" PRIu64, member.fsync_log_bytes, member.fsync_log_offset);
    text += " counters";
    for (const uint64_t counter : member.counters)
        text += text_format(" %" PRIu64, counter);
    return text;
}

std::string to_text(const Superblock& superblock)
{
    std::string text = text_format("volume %s label \"%s\"\n", uuid_text(superblock.volume_uuid).c_str(),
                                   printable(superblock.label).c_str());
    text += text_format("generation %" PRIu64 " copy of member %u created %" PRIu64 "\n",
                        superblock.generation.value, superblock.member_id.value, superblock.created_seconds);
    text += text_format("incompat [%s] readonly [%s] compat [%s]\n",
                        feature_names(FeatureClass::kRefuse, superblock.incompat_features).c_str(),
                        feature_names(FeatureClass::kReadOnly, superblock.readonly_features).c_str(),
                        feature_names(FeatureClass::kIgnore, superblock.compat_features).c_str());
    text += text_format("data %s metadata %s chunk %u name hash seed %016" PRIx64 "\n",
                        profile_name(superblock.data_profile), profile_name(superblock.metadata_profile),
                        superblock.chunk_bytes, superblock.name_hash_seed);
    text += text_format("next group address %" PRIu64 " next member id %u\n", superblock.next_group_address,
                        superblock.next_member_id);
    text += text_format("live logs%s%s tree commits %" PRIu64 "%s\n",
                        (superblock.live_logs & kLiveIntentLog) != 0 ? " intent" : "",
                        (superblock.live_logs & kLiveFsyncLog) != 0 ? " fsync" : "", superblock.tree_commits,
                        superblock.unmounted ? " unmounted" : "");
    text += "root " + to_text(superblock.root) + "\n";
    text += "map " + to_text(superblock.map) + "\n";
    if (superblock.balance.state != BalanceState::kNone)
        text += "balance " + to_text(superblock.balance) + "\n";
    if (const ReplaceRecord& replace = superblock.replace; replace.active())
        text += text_format("replace member %u by %u since %" PRIu64 "\n", replace.source.value,
                            replace.target.value, replace.started);
    for (const EpochRecord& epoch : superblock.epochs)
        text += "epoch " + to_text(epoch) + "\n";
    for (const MemberRecord& member : superblock.members)
        text += "member " + to_text(member) + "\n";
    for (const MemberRecord& spare : superblock.spares)
        text += "spare " + to_text(spare) + "\n";
    return text;
}

std::string to_text(const GroupRecord& group)
{
    std::string text = text_format("%" PRIu64 " %s %s", group.address.value, profile_name(group.profile),
                                   group_content_name(group.content).c_str());
    if ((group.flags & kGroupReadOnly) != 0)
        text += " read-only";
    if ((group.flags & kGroupEmptying) != 0)
        text += " emptying";
    if ((group.flags & kGroupChosen) != 0)
        text += " chosen";
    if ((group.flags & kGroupCopied) != 0)
        text += " copied";
    text += text_format(" k %u chunk %u column %" PRIu64 " mapping %u created %" PRIu64, group.data_columns,
                        group.chunk_bytes, group.column_bytes, group.mapping_version,
                        group.created_generation.value);
    text += " on";
    for (const GroupColumn& column : group.columns) {
        text += text_format(" %u:", column.member.value);
        for (size_t index = 0; index < column.runs.size(); ++index)
            text += text_format("%s%u+%u", index == 0 ? "" : ",", column.runs[index].first_slot,
                                column.runs[index].slot_count);
        if (column.stale())
            text += text_format(" stale since %" PRIu64, column.stale_since.value);
    }
    return text;
}

std::string to_text(const GroupMap& map)
{
    std::string text =
        text_format("map generation %" PRIu64 " groups %zu\n", map.generation.value, map.groups.size());
    for (const GroupRecord& group : map.groups)
        text += "group " + to_text(group) + "\n";
    return text;
}

}  // namespace cowraid
