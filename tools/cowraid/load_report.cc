// SPDX-License-Identifier: MIT
#include "tools/cowraid/load_report.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>

#include "base/out_of_memory.h"
#include "base/text.h"
#include "control/mount_table.h"
#include "device/assembly.h"
#include "device/open_member.h"

namespace cowraid {

Result<VolumeTarget> target_of_device(const std::string& text, const std::string& device, const char* advice,
                                      std::string& why)
{
    if (const auto mounted = find_mount_of_device(device); mounted.has_value())
        return VolumeTarget{.uuid = mounted->uuid, .mounted = true, .members = {}, .named_device = {}};
    const auto table = read_mount_table();
    for (const MountEntry& entry : table.ok() ? *table : std::vector<MountEntry>()) {
        if (entry.device != device || !entry.is_cowraid())
            continue;
        why = why_not_answered(text, entry);
        return Err::kAccess;
    }
    why = text + " is not in a mounted cowraid volume" + advice;
    return Err::kNotFound;
}

namespace {

constexpr const char* kWhatToName = "; name a mount point, member, label or uuid";

VolumeInfo info_of_superblock(const Assembly& assembly)
{
    const Superblock& superblock = assembly.superblock;
    VolumeInfo info;
    info.uuid = superblock.volume_uuid;
    info.label = superblock.label;
    info.generation = superblock.generation;
    info.chunk_bytes = superblock.chunk_bytes;
    info.data_profile = superblock.data_profile;
    info.metadata_profile = superblock.metadata_profile;
    info.read_only = true;
    for (const AssembledMember& member : assembly.members) {
        const MemberRecord* const record = superblock.member(member.id);
        CW_ASSERT(record != nullptr);
        MemberInfo line;
        line.id = member.id;
        line.reason = member.reason.text;
        line.unusable = member.reason.unusable;
        line.size_bytes = record->size_bytes;
        line.state = record->state;
        line.counters = record->counters;
        if (member.device != nullptr)
            line.path = member.device->name();
        if (member.device == nullptr || member.stale) {
            line.state = record->state == MemberState::kFailed ? MemberState::kFailed : MemberState::kMissing;
            info.degraded = true;
        }
        info.members.push_back(std::move(line));
    }
    for (const MemberRecord& record : superblock.spares) {
        SpareInfo spare{.id = record.id, .size_bytes = record.size_bytes};
        for (const AssembledSpare& found : assembly.spares)
            if (found.id == record.id)
                spare.path = found.device->name();
        info.spares.push_back(std::move(spare));
    }
    return info;
}

// What the superblocks that were found say, of members that make no volume together: each device is a line.
VolumeInfo info_of_found(const std::vector<FoundMember>& found)
{
    const FoundMember& newest =
        *std::max_element(found.begin(), found.end(), [](const FoundMember& a, const FoundMember& b) {
            return a.superblock.generation < b.superblock.generation;
        });
    Assembly assembly;
    assembly.superblock = newest.superblock;
    for (const MemberRecord& record : newest.superblock.members)
        assembly.members.push_back({.id = record.id});
    VolumeInfo info = info_of_superblock(assembly);
    for (const FoundMember& member : found) {
        const auto line = std::find_if(info.members.begin(), info.members.end(), [&](const MemberInfo& have) {
            return have.id == member.superblock.member_id;
        });
        if (line == info.members.end())
            continue;
        line->state = MemberState::kPresent;
        if (line->path.empty())
            line->path = member.path;
        else
            info.members.insert(line + 1, *line)->path = member.path;
    }
    return info;
}

// Without asking the mount, which answers only who mounted it.
const MountEntry* cowraid_mount_at(const std::vector<MountEntry>& table, const std::string& text)
{
    const MountEntry* const entry = mount_at(table, mount_point_path(text));
    return entry != nullptr && entry->is_cowraid() ? entry : nullptr;
}

// Writes nothing. What a crafted volume asks for ends this command, and nobody else.
Result<std::unique_ptr<Filesystem>> open_to_look(Assembly assembly, std::string& why)
{
    (void)limit_memory(usual_memory_bytes(), "cowraid check --memory looks at a damaged volume with more");
    MountOptions options;
    options.read_only = true;
    options.degraded = true;
    options.manual_commit = true;
    auto filesystem = Filesystem::open(std::move(assembly), options, why);
    if (!filesystem.ok() && why.empty())
        why = err_text(filesystem.err());
    return filesystem;
}

Result<VolumeLayout> load_offline_layout(const VolumeMembers& members, Occupancy occupancy, std::string& why)
{
    std::vector<std::string> warnings;
    CW_ASSIGN(auto devices, open_member_devices(members, MemberAccess::kLook, warnings, why));
    CW_ASSIGN(Assembly assembly, assemble(std::move(devices), why, lenient_assembly(members)));
    CW_ASSIGN(const std::unique_ptr<Filesystem> filesystem, open_to_look(std::move(assembly), why));
    return volume_layout(*filesystem, {}, occupancy, UINT64_MAX);
}

}  // namespace

std::string device_text(const struct stat& info)
{
    return std::to_string(major(info.st_dev)) + ":" + std::to_string(minor(info.st_dev));
}

Result<VolumeMembers> find_unmounted(const std::vector<std::string>& operands, Mounted mounted,
                                     const char* advice, std::string& why)
{
    VolumeSpec spec;
    struct stat info { };
    if (operands.size() == 1 && stat(operands.front().c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
        CW_ASSIGN(const VolumeTarget target, find_target(operands, why));
        spec.name = "UUID=" + uuid_text(target.uuid);
    } else {
        CW_ASSIGN(spec, parse_volume_spec(operands, why));
    }
    const auto refuse = [&](const std::optional<MountedVolume>& found) -> Status {
        if (!found.has_value() || mounted != Mounted::kRefused)
            return {};
        const std::string where = where_mounted(*found);
        const bool in_tree = where.starts_with("mounted");
        why = title_of(*found) + (in_tree ? " is " : " was ") + where +
              (in_tree ? "; unmount it" : "; end what uses it") + advice;
        return Err::kBusy;
    };
    // Image files are found by their names only.
    if (spec.paths.empty())
        CW_TRY(refuse(find_mounted_volume(spec.name)));
    CW_ASSIGN(VolumeMembers volume, find_volume(spec, Unusable::kSkip, why));
    CW_TRY(refuse(find_mounted_volume(volume.uuid)));
    return volume;
}

Result<VolumeTarget> find_target(const std::vector<std::string>& operands, std::string& why)
{
    const std::string& text = operands.front();
    struct stat info { };
    const auto table = read_mount_table();
    const MountEntry* const entry =
        operands.size() == 1 && table.ok() ? cowraid_mount_at(*table, text) : nullptr;
    if (entry != nullptr && !says_it_is_dead(text))
        return target_of_device(text, entry->device, kWhatToName, why);
    const bool is_directory = operands.size() == 1 && stat(text.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
    if (operands.size() == 1 && is_dead_mount(text)) {
        why = "the daemon of " + text + " is dead; unmount it and mount the volume again";
        return Err::kIo;
    }
    if (is_directory && text.find('/') != std::string::npos)
        return target_of_device(text, device_text(info), kWhatToName, why);
    CW_ASSIGN(const VolumeSpec spec, parse_volume_spec(operands, why));
    VolumeTarget target;
    if (const auto mounted = find_mounted_volume(spec.name); spec.paths.empty() && mounted.has_value()) {
        target.uuid = mounted->uuid;
        target.mounted = true;
        return target;
    }
    auto members = find_volume(spec, Unusable::kSkip, why);
    if (!members.ok() && is_directory)
        return target_of_device(text, device_text(info), kWhatToName, why);
    if (!members.ok())
        return members.err();
    target.members = members.take();
    target.uuid = target.members.uuid;
    target.mounted = find_mounted_volume(target.uuid).has_value();
    if (target.members.named.size() == 1)
        target.named_device = target.members.named.front();
    return target;
}

Result<ControlClient> connect_target(const VolumeTarget& target, std::string& why)
{
    auto client = ControlClient::connect(target.uuid);
    if (!client.ok())
        why = client.err() == Err::kAccess
                  ? std::string("the daemon of this volume may not be asked; ") + next_step_when_denied()
                  : "the volume is not mounted; mount it first";
    return client;
}

Result<VolumeReport> load_mounted_report(const Uuid& uuid, std::string& why)
{
    CW_ASSIGN(auto client,
              connect_target({.uuid = uuid, .mounted = true, .members = {}, .named_device = {}}, why));
    CW_ASSIGN(const Json result, client.ask("info", why));
    auto report = decode_report(result.get());
    if (!report.ok())
        why = "the daemon answers in another format; is it of another version?";
    else if (const auto mounted = find_mounted_volume(uuid); mounted.has_value())
        report->mount_text = where_mounted(*mounted);
    else
        report->mount_text = "mounted at " + report->mount_point;
    return report;
}

Result<VolumeReport> load_offline_report(const VolumeMembers& members, std::string& why)
{
    std::vector<std::string> warnings;
    CW_ASSIGN(auto devices, open_member_devices(members, MemberAccess::kLook, warnings, why));
    VolumeReport report;
    auto assembled = assemble(std::move(devices), report.problem, lenient_assembly(members));
    if (!assembled.ok() && !members.members.empty()) {
        report.info = info_of_found(members.members);
        return report;
    }
    why = report.problem;
    CW_ASSIGN(Assembly assembly, std::move(assembled));
    report.info = info_of_superblock(assembly);
    const auto filesystem = open_to_look(std::move(assembly), report.problem);
    if (!filesystem.ok())
        return report;
    report.info = (*filesystem)->info();
    report.has_usage = true;
    return report;
}

Result<VolumeReport> load_report(const VolumeTarget& target, std::string& why)
{
    return target.mounted ? load_mounted_report(target.uuid, why) : load_offline_report(target.members, why);
}

Result<VolumeLayout> load_layout(const VolumeTarget& target, Occupancy occupancy, std::string& why)
{
    if (!target.mounted)
        return load_offline_layout(target.members, occupancy, why);
    CW_ASSIGN(auto client, connect_target(target, why));
    VolumeLayout layout;
    std::vector<LayoutGroup> groups;
    do {
        const Json request = json_make_object();
        json_put_integer(request.get(), "from", layout.next.value);
        CW_ASSIGN(const Json answer, occupancy == Occupancy::kGroups
                                         ? client.ask("layout", why, request.get())
                                         : client.call("stripe-layout", request.get(), why));
        why = "the daemon answers in another format; is it of another version?";
        CW_ASSIGN(layout, decode_layout(answer.get()));
        std::move(layout.groups.begin(), layout.groups.end(), std::back_inserter(groups));
    } while (layout.next.value != 0);
    layout.groups = std::move(groups);
    why.clear();
    return layout;
}

}  // namespace cowraid
