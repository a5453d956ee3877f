// SPDX-License-Identifier: MIT
#include "tools/cowraid/status_text.h"

#include <algorithm>

#include "base/print.h"
#include "tools/cowraid/work_text.h"
#include "tools/mount/effective_options.h"

namespace cowraid {

namespace {

std::string note_of(const MemberInfo& member, SizeStyle sizes)
{
    if (!member.reason.empty() && member.reason != "is absent")
        return member.reason;
    if (member.slow_ms > 0)
        return "is slow: " + slow_text(member);
    if (member.doubtful && member.stale_groups == 0)
        return "many errors within ten minutes";
    return member.stale_groups == 0 ? ""
                                    : "lacks writes to " + count_text(member.stale_groups, "block group") +
                                          ", " + size_text(member.stale_bytes, sizes);
}

uint64_t counter_of(const MemberInfo& member, MemberCounter counter)
{
    return member.counters[static_cast<size_t>(counter)];
}

std::string may_fail_text(const VolumeInfo& info)
{
    if (info.may_fail == 0)
        return "no member";
    const std::string text = "any " + count_text(info.may_fail, "member");
    if (info.read_only || info.may_fail_writing == info.may_fail)
        return text;
    return text + (info.may_fail_writing == 0
                       ? ", but then nothing can be written"
                       : "; writing goes on without " + count_text(info.may_fail_writing, "member"));
}

// Those that nobody has to ask for are left out, but for the first two.
std::string options_shown(const std::string& options)
{
    const std::string usual = mount_options_text({});
    const std::vector<std::string_view> left_out = split(usual, ',');
    constexpr size_t kAlways = 2;  // rw, relatime
    std::string out;
    for (const std::string_view option : split(options, ','))
        if (std::find(left_out.begin() + kAlways, left_out.end(), option) == left_out.end())
            out += (out.empty() ? "" : ",") + std::string(option);
    return out;
}

std::string damaged_node_text(const DamagedNode& node)
{
    std::string text = std::string("a node of the ") + tree_name(node.tree) + " tree";
    if (node.tree != TreeIndex::kFiles)
        return text;
    text += ": what it had of inode " + std::to_string(node.first_inode.value);
    if (node.last_inode.value == kToTheEnd)
        text += " and all above";
    else if (node.last_inode != node.first_inode)
        text += " to " + std::to_string(node.last_inode.value);
    return text;
}

std::string damage_text(const DamagedFiles& damage)
{
    std::string out = "Permanent errors have been detected in the following files:\n\n";
    for (const DamagedFile& file : damage.files)
        for (const std::string& path : file.paths)
            out += line_text("  %s: %s, bytes %llu to %llu", quoted(path).c_str(),
                             count_text(file.blocks, "block").c_str(),
                             static_cast<unsigned long long>(file.range.first),
                             static_cast<unsigned long long>(file.range.last));
    if (damage.file_count > damage.files.size())
        out += "  and " + std::to_string(damage.file_count - damage.files.size()) + " more\n";
    for (const DamagedNode& node : damage.nodes)
        out += line_text("  %s", damaged_node_text(node).c_str());
    if (damage.node_count > damage.nodes.size())
        out += "  and " + std::to_string(damage.node_count - damage.nodes.size()) + " nodes more\n";
    if (damage.file_count + damage.node_count == 0)
        out += "  none: what is damaged belongs to files that are deleted or changed by now\n";
    return out;
}

// As zpool status ends.
std::string errors_text(const VolumeStatus& status)
{
    const uint64_t nodes = lost_nodes(status), blocks = lost_blocks(status) - nodes;
    if (blocks + nodes == 0)
        return "errors: No known data errors\n";
    std::string out = "errors: ";
    const bool names =
        status.damage && (blocks > 0 || status.damage->file_count + status.damage->node_count > 0);
    if (nodes > 0)
        out += count_text(nodes, "tree node") + " cannot be read, cowraid check says what is lost" +
               (blocks > 0 || names ? "; " : "\n");
    if (names)
        return out + damage_text(*status.damage);
    return blocks == 0 ? out
                       : out + count_text(blocks, "data error") + ", cowraid status -v names the files\n";
}

// A line for each member and spare: its state, and the errors that were met on it.
std::string member_table(const VolumeStatus& status, SizeStyle sizes)
{
    const VolumeInfo& info = status.report.info;
    size_t width = 6;
    for (const MemberInfo& member : info.members)
        width = std::max(width, member.path.size());
    for (const SpareInfo& spare : info.spares)
        width = std::max(width, spare.path.size());
    std::string out = line_text("  %4s  %-*s  %-10s %6s %6s %6s", "ID", static_cast<int>(width), "DEVICE",
                                "STATE", "READ", "WRITE", "CKSUM");
    for (const MemberInfo& member : info.members) {
        const uint64_t wrong =
            counter_of(member, MemberCounter::kCorruption) + counter_of(member, MemberCounter::kGeneration) +
            counter_of(member, MemberCounter::kParity) + counter_of(member, MemberCounter::kSuperblock);
        const uint64_t writes =
            counter_of(member, MemberCounter::kWriteErrors) + counter_of(member, MemberCounter::kFlushErrors);
        const std::string note = note_of(member, sizes);
        out += line_text("  %4u  %-*s  %-10s %6llu %6llu %6llu%s%s", member.id.value, static_cast<int>(width),
                         member.path.empty() ? "-" : member.path.c_str(), state_of(member, status),
                         static_cast<unsigned long long>(counter_of(member, MemberCounter::kReadErrors)),
                         static_cast<unsigned long long>(writes), static_cast<unsigned long long>(wrong),
                         note.empty() ? "" : "  ", note.c_str());
    }
    for (const SpareInfo& spare : info.spares)
        out += line_text("  %4u  %-*s  %s, %s", spare.id.value, static_cast<int>(width),
                         spare.path.empty() ? "-" : spare.path.c_str(), state_of(spare),
                         size_text(spare.size_bytes, sizes).c_str());
    return out;
}

// What new block groups of that content are made as, and how much of it lies in others.
std::string profile_text(const VolumeInfo& info, uint32_t content, ProfileId profile, SizeStyle sizes)
{
    std::string out =
        std::string(profile_name(profile)) + (content == kGroupData ? " for data" : " for metadata");
    std::string others;
    for (const SpaceInfo& space : info.spaces)
        if ((space.content & content) != 0 && space.profile != profile && space.used_bytes > 0)
            others += (others.empty() ? " (" : ", ") + size_text(space.used_bytes, sizes) + " still " +
                      profile_name(space.profile);
    return out + others + (others.empty() ? "" : ")");
}

// Where the volume can be reached; what else there is to say where it is out of the tree.
std::string mounted_text(const VolumeReport& report)
{
    const std::string usual = "mounted at ";
    return report.mount_text.empty()              ? report.mount_point
           : report.mount_text.starts_with(usual) ? report.mount_text.substr(usual.size())
                                                  : report.mount_text;
}

}  // namespace

std::string status_text(const VolumeStatus& status, SizeStyle sizes)
{
    const VolumeInfo& info = status.report.info;
    const Health health = health_of(status);
    std::string out =
        field_text("Volume:", (info.label.empty() ? "" : quoted(info.label) + "  ") + uuid_text(info.uuid));
    out += field_text("Mounted:", mounted_text(status.report));
    out += field_text("Options:", options_shown(status.report.mount_options));
    out += field_text("State:", health.state);
    if (!health.what.empty())
        out += field_text("Status:", health.what);
    if (!health.action.empty())
        out += field_text("Action:", health.action);
    out += field_text("Profiles:", profile_text(info, kGroupData, info.data_profile, sizes) + ", " +
                                       profile_text(info, kGroupMetadata, info.metadata_profile, sizes));
    out += field_text("May still fail:", may_fail_text(info));
    out += field_text("Scrub:", scrub_summary(status.scrub));
    if (status.catch_up.state == ScrubState::kRunning || status.catch_up.state == ScrubState::kPaused)
        out += field_text("Filling members:", scrub_summary(status.catch_up));
    if (status.replace.state != ReplaceStatus::State::kNone)
        out += field_text("Replacement:", replace_summary(status.replace));
    if (status.balance.state != BalanceStatus::State::kNone)
        out += field_text("Balance:", balance_summary(status.balance));
    return out + "\n" + member_table(status, sizes) + "\n" + errors_text(status) + "\n";
}

}  // namespace cowraid
