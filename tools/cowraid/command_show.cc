// SPDX-License-Identifier: MIT
// cowraid filesystem show
#include <cctype>
#include <cstdio>
#include <map>

#include "base/print.h"
#include "base/text.h"
#include "tools/cowraid/command.h"
#include "tools/cowraid/load_report.h"

namespace cowraid {

namespace {

uint64_t used_bytes(const VolumeInfo& info)
{
    uint64_t sum = 0;
    for (const SpaceInfo& space : info.spaces)
        sum += space.used_bytes;
    return sum;
}

std::string capitalized(std::string text)
{
    if (!text.empty())
        text[0] = static_cast<char>(toupper(text[0]));
    return text;
}

bool is_missing(const MemberInfo& member)
{
    return member.path.empty() && !member.unusable;
}

std::string condition_of(const MemberInfo& member)
{
    if (is_missing(member))
        return "MISSING";
    if (member.unusable)
        return "UNUSABLE";
    if (member.state != MemberState::kPresent)
        return member.path + (member.state == MemberState::kFailed ? " FAILED" : " STALE");
    return member.path;
}

void print_member(const MemberInfo& member, bool has_usage, SizeStyle sizes)
{
    std::string place = condition_of(member);
    if (!member.reason.empty() && member.reason != "is absent")
        place += " (" + member.reason + ")";
    else if (member.stale_groups > 0)
        place += " STALE (missed writes to " + count_text(member.stale_groups, "block group") + ", " +
                 size_text(member.stale_bytes, sizes) + ")";
    const std::string used = has_usage ? size_text(member.used_bytes, sizes) : "unknown";
    print_line(stdout, "\tdevid %4u size %s used %s path %s", member.id.value,
               size_text(member.size_bytes, sizes).c_str(), used.c_str(), place.c_str());
}

void print_volume(const VolumeReport& report, SizeStyle sizes)
{
    const VolumeInfo& info = report.info;
    const std::string label = info.label.empty() ? "none" : quoted(info.label);
    print_line(stdout, "Label: %s  uuid: %s", label.c_str(), uuid_text(info.uuid).c_str());
    const std::string used = report.has_usage ? size_text(used_bytes(info), sizes) : "unknown";
    print_line(stdout, "\tTotal devices %zu FS bytes used %s", info.members.size(), used.c_str());
    const std::string why = info.read_only_reason.empty() ? "" : ": " + info.read_only_reason;
    if (report.mounted)
        print_line(stdout, "\t%s%s", capitalized(report.mount_text).c_str(),
                   info.read_only ? (" (read-only" + why + ")").c_str() : "");
    std::vector<std::string> missing;
    for (const MemberInfo& member : info.members) {
        print_member(member, report.has_usage, sizes);
        if (is_missing(member))
            missing.push_back("devid " + std::to_string(member.id.value));
    }
    for (const SpareInfo& spare : info.spares)
        print_line(stdout, "\tspare %4u size %s path %s", spare.id.value,
                   size_text(spare.size_bytes, sizes).c_str(),
                   spare.path.empty() ? "MISSING" : spare.path.c_str());
    if (!missing.empty())
        print_line(stdout, "\t*** Some devices missing: %s", join_words(missing).c_str());
    if (!report.problem.empty())
        print_line(stdout, "\t*** Cannot be opened: %s", report.problem.c_str());
    print_empty_line(stdout);
}

// Every volume of which a member or a daemon was found.
std::vector<VolumeReport> load_all()
{
    std::map<Uuid, VolumeMembers> found;
    ScanResult scanned = scan_members({});
    for (const std::string& note : scanned.notes)
        print_warning(kProgram, note);
    for (FoundMember& member : scanned.members) {
        VolumeMembers& volume = found[member.superblock.volume_uuid];
        volume.uuid = member.superblock.volume_uuid;
        volume.label = member.superblock.label;
        volume.members.push_back(std::move(member));
    }
    std::vector<VolumeReport> reports;
    const auto add = [&](const Result<VolumeReport>& report, const Uuid& uuid, const std::string& why) {
        if (report.ok())
            reports.push_back(*report);
        else
            print_warning(kProgram, "volume " + uuid_text(uuid) + ": " + why);
    };
    for (const MountedVolume& mounted : list_mounted_volumes()) {
        std::string why;
        add(load_mounted_report(mounted.uuid, why), mounted.uuid, why);
        found.erase(mounted.uuid);
    }
    for (const auto& [uuid, members] : found) {
        std::string why;
        add(load_offline_report(members, why), uuid, why);
    }
    return reports;
}

void print_reports(const std::vector<VolumeReport>& reports, const CommandOptions& options)
{
    if (options.format == OutputFormat::kText) {
        for (const VolumeReport& report : reports)
            print_volume(report, options.sizes);
        return;
    }
    Json out = json_with_schema("filesystem-show");
    Json volumes = json_make_array();
    for (const VolumeReport& report : reports)
        json_array_append_new(volumes.get(), encode_report(report).release());
    json_put(out.get(), "volumes", std::move(volumes));
    print_json(out.get());
}

}  // namespace

int command_show(int argc, char** argv, CommandOptions options)
{
    if (!parse_common(argc, argv, "[VOLUME|MEMBER...]", "Show a volume, or all that are found.", options))
        return kExitUsage;
    if (options.operands.empty()) {
        print_reports(load_all(), options);
        return kExitOk;
    }
    std::string why;
    const auto target = find_target(options.operands, why);
    if (!target.ok())
        return command_failed(options, target.err(), why);
    const auto report = load_report(*target, why);
    if (!report.ok())
        return command_failed(options, report.err(), why);
    print_reports({*report}, options);
    return kExitOk;
}

}  // namespace cowraid
