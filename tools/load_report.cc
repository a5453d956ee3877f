// SPDX-License-Identifier: MIT
#include "tools/load_report.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>

#include "device/assembly.h"
#include "tools/mount_table.h"
#include "tools/text.h"

namespace cowraid {

namespace {

Result<VolumeTarget> target_of_directory(const std::string& text, const struct stat& info, std::string& why)
{
    const std::string device = std::to_string(major(info.st_dev)) + ":" + std::to_string(minor(info.st_dev));
    for (const MountedVolume& mounted : list_mounted_volumes()) {
        if (mounted.device == device)
            return VolumeTarget{.uuid = mounted.uuid, .mounted = true, .members = {}, .named_device = {}};
    }
    const auto table = read_mount_table();
    const bool ours = table.ok() && std::any_of(table->begin(), table->end(), [&](const MountEntry& entry) {
                          return entry.device == device && entry.is_cowraid();
                      });
    if (ours) {
        why = text + " is in a cowraid volume, but its daemon does not answer this user; " +
              (geteuid() == 0 ? "see the system log" : "only root and who mounted it may ask: run as root");
        return Err::kAccess;
    }
    why = text + " is not in a mounted cowraid volume; name a mount point, member, label or uuid";
    return Err::kNotFound;
}

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
    return info;
}

}  // namespace

Result<VolumeTarget> find_target(const std::vector<std::string>& operands, std::string& why)
{
    const std::string& text = operands.front();
    struct stat info { };
    const bool is_directory = operands.size() == 1 && stat(text.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
    if (operands.size() == 1 && is_dead_mount(text)) {
        why = "the daemon of " + text + " is dead; unmount it and mount the volume again";
        return Err::kIo;
    }
    if (is_directory && text.find('/') != std::string::npos)
        return target_of_directory(text, info, why);
    CW_ASSIGN(const VolumeSpec spec, parse_volume_spec(operands, why));
    VolumeTarget target;
    if (const auto mounted = find_mounted_volume(spec.name); spec.paths.empty() && mounted.has_value()) {
        target.uuid = mounted->uuid;
        target.mounted = true;
        return target;
    }
    auto members = find_volume(spec, Unusable::kSkip, why);
    if (!members.ok() && is_directory)
        return target_of_directory(text, info, why);
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
        why = client.err() == Err::kAccess ? "only root may ask the daemon of this volume; run as root"
                                           : "the volume is not mounted; mount it first";
    return client;
}

Result<VolumeReport> load_mounted_report(const Uuid& uuid, std::string& why)
{
    CW_ASSIGN(auto client,
              connect_target({.uuid = uuid, .mounted = true, .members = {}, .named_device = {}}, why));
    CW_ASSIGN(const Json result, client.call("info", nullptr, why));
    auto report = decode_report(result.get());
    if (!report.ok())
        why = "the daemon answers in another format; is it of another version?";
    return report;
}

Result<VolumeReport> load_offline_report(const VolumeMembers& members, std::string& why)
{
    std::vector<std::string> warnings;
    CW_ASSIGN(auto devices, open_member_devices(members, MemberAccess::kLook, warnings, why));
    CW_ASSIGN(Assembly assembly, assemble(std::move(devices), why, {.strangers = Strangers::kSkip}));
    VolumeReport report;
    report.info = info_of_superblock(assembly);
    MountOptions options;
    options.read_only = true;
    options.degraded = true;
    options.manual_commit = true;
    auto filesystem = Filesystem::open(std::move(assembly), options, report.problem);
    if (!filesystem.ok()) {
        if (report.problem.empty())
            report.problem = err_text(filesystem.err());
        return report;
    }
    report.info = (*filesystem)->info();
    report.has_usage = true;
    return report;
}

Result<VolumeReport> load_report(const VolumeTarget& target, std::string& why)
{
    return target.mounted ? load_mounted_report(target.uuid, why) : load_offline_report(target.members, why);
}

}  // namespace cowraid
