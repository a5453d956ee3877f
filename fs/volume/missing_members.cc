// SPDX-License-Identifier: MIT
#include "fs/volume/missing_members.h"

#include <algorithm>

#include "format/profile.h"

namespace cowraid {

namespace {

// Columns of a group that tolerance must carry: of absent members, and those that lack something.
uint32_t lost_columns(const GroupRecord& group, const std::vector<MemberId>& missing)
{
    return static_cast<uint32_t>(
        std::count_if(group.columns.begin(), group.columns.end(), [&](const GroupColumn& column) {
            return column.stale() ||
                   std::find(missing.begin(), missing.end(), column.member) != missing.end();
        }));
}

std::string volume_name(const Superblock& superblock)
{
    return superblock.label.empty() ? "volume " + uuid_text(superblock.volume_uuid)
                                    : "volume '" + superblock.label + "'";
}

// A group lacks more than it tolerates, with members that are missing or without.
ReadOnlyReason beyond_tolerance(const Profile& profile, bool missing)
{
    if (missing)
        return {std::string("more is missing than ") + profile.name + " tolerates",
                "unmount it and mount it with the members that are missing; without them copy what can be "
                "read"};
    return {std::string("members lack more writes than ") + profile.name + " tolerates",
            "copy what can be read: no member has the rest"};
}

ReadOnlyReason too_few(MemberId replaced, bool half)
{
    if (replaced.value == 0)
        return {"too few members are present for safe writing", step_for_too_few("more members", half)};
    return {"power failed as another device became a member, and too few of the others are present: "
            "they may not know of it",
            step_for_too_few("all, or with the device that was the member", half)};
}

bool has_stale_columns(const GroupMap& map, MemberId id)
{
    return std::any_of(map.groups.begin(), map.groups.end(), [=](const GroupRecord& group) {
        return std::any_of(group.columns.begin(), group.columns.end(),
                           [=](const GroupColumn& column) { return column.member == id && column.stale(); });
    });
}

}  // namespace

std::string step_for_too_few(const char* needed, bool half)
{
    return std::string("unmount it and mount it with ") + needed +
           (half ? ", or with -o degraded=force, which writes with those that are there"
                 : "; until then copy what can be read");
}

size_t voter_count(const Superblock& superblock, const std::vector<MemberId>& missing)
{
    return static_cast<size_t>(
        std::count_if(superblock.members.begin(), superblock.members.end(), [&](const MemberRecord& record) {
            return record.id != superblock.replace.target &&
                   std::find(missing.begin(), missing.end(), record.id) == missing.end();
        }));
}

size_t needed_for_writing(size_t voters, bool half)
{
    return half ? (voters + 1) / 2 : voters / 2 + 1;
}

MemberSet::Quorum quorum_for_writing(const Superblock& table, const Superblock& majority_of,
                                     const GroupMap& map, bool half)
{
    MemberSet::Quorum quorum{{}, needed_for_writing(voter_count(majority_of), half)};
    for (const MemberRecord& record : table.members)
        if (record.id != table.replace.target)
            quorum.members.push_back(record.id);
    const MemberId source = table.replace.source;
    const bool all_copied = std::all_of(map.groups.begin(), map.groups.end(), [=](const GroupRecord& group) {
        return (group.flags & kGroupCopied) != 0 ||
               std::none_of(group.columns.begin(), group.columns.end(),
                            [=](const GroupColumn& column) { return column.member == source; });
    });
    if (table.replace.active() && table.member(table.replace.target) != nullptr && all_copied) {
        quorum.replaced = source;
        quorum.successor = table.replace.target;
    }
    return quorum;
}

MemberSet::Quorum quorum_without(const Superblock& table, MemberId replaced)
{
    MemberSet::Quorum quorum{{}, voter_count(table) + 1 - needed_for_writing(voter_count(table), false)};
    for (const MemberRecord& record : table.members)
        if (record.id != table.replace.target && record.id != replaced)
            quorum.members.push_back(record.id);
    return quorum;
}

std::string tolerance_text(const Superblock& superblock, const GroupMap& map,
                           const std::vector<MemberId>& missing, size_t needed)
{
    uint32_t left = UINT32_MAX;
    for (const GroupRecord& group : map.groups) {
        const Profile& profile = *find_profile(group.profile);
        const uint32_t lost = lost_columns(group, missing);
        if (lost > profile.tolerance)
            return std::string("more than ") + profile.name + " tolerates: some files may be lost";
        left = std::min(left, profile.tolerance - lost);
    }
    if (left == 0 || left == UINT32_MAX)
        return "no further member may fail";
    return std::to_string(left) + (left == 1 ? " more member may fail" : " more members may fail") +
           (voter_count(superblock, missing) < needed + left
                ? ", but writing needs " + std::to_string(needed) + " members"
                : "");
}

std::string lacking_text(const Assembly& assembly, const ReplaceRecord& replace, const MemberSet& members,
                         const GroupMap& map)
{
    std::string text;
    for (const AssembledMember& member : assembly.members) {
        const bool absent = members.device(member.id) == nullptr;
        const bool has_share = member.id != replace.target;  // of a replacement: without columns
        if (!has_share || (!absent && !has_stale_columns(map, member.id)))
            continue;
        text += (text.empty() ? "member " : ", member ") + std::to_string(member.id.value) + " ";
        text += member.reason.text.empty() ? "is without writes it missed" : member.reason.text;
    }
    return text;
}

std::string assess_missing(const Superblock& superblock, const GroupMap& map,
                           const std::vector<MemberId>& missing, MemberId replaced,
                           const std::string& lacking, const MountOptions& options, ReadOnlyReason& read_only)
{
    read_only = {};
    const std::string problem = volume_name(superblock) + ": " + lacking;
    for (const GroupRecord& group : map.groups) {
        const Profile& profile = *find_profile(group.profile);
        if (lost_columns(group, missing) <= profile.tolerance)
            continue;
        if (!options.rescue || !options.read_only)
            return problem + ": more than " + profile.name +
                   " tolerates; what is left can be read with -o ro,rescue";
        read_only = beyond_tolerance(profile, !missing.empty());
        return {};
    }
    const auto is_there = [&](MemberId id) {
        return std::find(missing.begin(), missing.end(), id) == missing.end();
    };
    const auto suffices = [&](bool half) {
        return quorum_for_writing(superblock, superblock, map, half).holds(is_there) &&
               (half || replaced.value == 0 || quorum_without(superblock, replaced).holds(is_there));
    };
    if (!suffices(options.half))
        read_only = too_few(replaced, suffices(true));
    if (options.degraded || options.rescue || voter_count(superblock, missing) == voter_count(superblock))
        return {};
    const char* const use = suffices(false)  ? ""
                            : suffices(true) ? " to read, degraded=force to write with half of the members"
                                             : " to read";
    const size_t needed = needed_for_writing(voter_count(superblock), options.half);
    return problem + "; add what is missing, or mount with -o degraded" + use + " (" +
           tolerance_text(superblock, map, missing, needed) + " then)";
}

}  // namespace cowraid
