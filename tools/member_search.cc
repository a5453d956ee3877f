// SPDX-License-Identifier: MIT
#include "tools/member_search.h"

#include <algorithm>

#include "device/open_member.h"
#include "tools/text.h"

namespace cowraid {

namespace {

bool contains(const std::vector<std::string>& list, const std::string& text)
{
    return std::find(list.begin(), list.end(), text) != list.end();
}

Result<std::vector<FoundMember>> inspect_named(const std::vector<std::string>& paths, std::string& why)
{
    std::vector<FoundMember> named;
    for (const std::string& path : paths) {
        CW_ASSIGN(FoundMember member, inspect_member(path, why));
        if (!named.empty() && member.superblock.volume_uuid != named.front().superblock.volume_uuid) {
            why = path + " belongs to volume " + uuid_text(member.superblock.volume_uuid) + ", " +
                  named.front().path + " to " + uuid_text(named.front().superblock.volume_uuid) +
                  "; name members of one volume";
            return Err::kInvalid;
        }
        named.push_back(std::move(member));
    }
    return named;
}

// Drops members that were only found and stand for the same member as a named one.
void prefer_named(VolumeMembers& volume, const std::vector<FoundMember>& named)
{
    std::erase_if(volume.members, [&](const FoundMember& found) {
        if (contains(volume.named, found.path))
            return false;
        return std::any_of(named.begin(), named.end(), [&](const FoundMember& member) {
            return member.superblock.member_id == found.superblock.member_id;
        });
    });
}

Result<UniqueFd> open_with(const std::string& path, MemberAccess access, std::string& why)
{
    switch (access) {
    case MemberAccess::kReadWrite:
        return open_member_fd(path, {.read_only = false, .exclusive = true}, why);
    case MemberAccess::kReadOnly:
        return open_member_fd(path, {.read_only = true, .exclusive = true}, why);
    case MemberAccess::kLook:
        return open_member_fd(path, {.read_only = true, .exclusive = false}, why);
    case MemberAccess::kReadWriteIfPossible:
        break;
    }
    auto fd = open_member_fd(path, {.read_only = false, .exclusive = true}, why);
    const bool protected_from_writing =
        fd.err() == Err::kReadOnly || fd.err() == Err::kAccess || fd.err() == Err::kNotPermitted;
    if (fd.ok() || !protected_from_writing)
        return fd;
    return open_member_fd(path, {.read_only = true, .exclusive = true}, why);
}

}  // namespace

Result<VolumeMembers> find_volume(const VolumeSpec& spec, std::string& why)
{
    VolumeMembers volume;
    std::vector<FoundMember> named;
    if (spec.paths.empty()) {
        CW_ASSIGN(volume.members, scan_for(spec.name, {}, why));
    } else {
        for (const std::string& path : spec.paths)
            volume.named.push_back(absolute_path(path));
        CW_ASSIGN(named, inspect_named(volume.named, why));
        CW_ASSIGN(volume.members,
                  scan_for(volume.named.front(), {.directories = {}, .paths = volume.named}, why));
        prefer_named(volume, named);
    }
    if (volume.members.empty()) {
        why = "no member of the volume was found; name one of its members by path";
        return Err::kNotFound;
    }
    volume.uuid = volume.members.front().superblock.volume_uuid;
    volume.label = volume.members.front().superblock.label;
    return volume;
}

Result<std::vector<OpenedMember>> open_members(const VolumeMembers& volume, MemberAccess access,
                                               std::vector<std::string>& warnings, std::string& why)
{
    std::vector<OpenedMember> opened;
    for (const FoundMember& member : volume.members) {
        auto fd = open_with(member.path, access, why);
        if (fd.ok()) {
            opened.push_back({.path = member.path, .fd = fd.take()});
            continue;
        }
        if (fd.err() == Err::kBusy || contains(volume.named, member.path))
            return fd.err();
        warnings.push_back(why);
    }
    if (opened.empty())
        return Err::kNotFound;
    return opened;
}

Result<std::vector<std::unique_ptr<BlockDevice>>> open_member_devices(const VolumeMembers& volume,
                                                                      MemberAccess access,
                                                                      std::vector<std::string>& warnings,
                                                                      std::string& why)
{
    CW_ASSIGN(std::vector<OpenedMember> opened, open_members(volume, access, warnings, why));
    const bool read_only = access == MemberAccess::kReadOnly || access == MemberAccess::kLook;
    std::vector<std::unique_ptr<BlockDevice>> devices;
    for (OpenedMember& member : opened) {
        CW_ASSIGN(auto device, make_device_from_fd(std::move(member.fd), member.path,
                                                   {.read_only = read_only, .exclusive = false}, why));
        devices.push_back(std::move(device));
    }
    return devices;
}

}  // namespace cowraid
