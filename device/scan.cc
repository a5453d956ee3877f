// SPDX-License-Identifier: MIT
#include "device/scan.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <set>
#include <tuple>

#include "device/loop_backing.h"
#include "device/open_member.h"
#include "device/superblock_store.h"

namespace cowraid {

namespace {

// Something lies on top of it (multipath, encryption, RAID): the member, if any, is that.
bool has_holders(const std::string& name)
{
    DIR* directory = opendir(("/sys/class/block/" + name + "/holders").c_str());
    if (directory == nullptr)
        return false;
    bool found = false;
    while (const dirent* entry = readdir(directory))
        found = found || entry->d_name[0] != '.';
    closedir(directory);
    return found;
}

void add_block_devices(std::vector<std::string>& paths)
{
    FILE* partitions = std::fopen("/proc/partitions", "re");
    if (partitions == nullptr)
        return;
    char line[512];
    while (std::fgets(line, sizeof line, partitions) != nullptr) {
        uint64_t kibibytes = 0;
        char name[256];
        if (std::sscanf(line, " %*u %*u %" SCNu64 " %255s", &kibibytes, name) != 2)
            continue;
        // Too small for a member: no need to wake a floppy drive.
        if (kibibytes < kMinMemberBytes / kKiB || has_holders(name))
            continue;
        std::string path = std::string("/dev/") + name;
        std::replace(path.begin(), path.end(), '!', '/');  // sysfs spelling of devices in subdirectories
        paths.push_back(std::move(path));
    }
    std::fclose(partitions);
}

void add_files_of(const std::string& directory_path, std::vector<std::string>& paths)
{
    DIR* directory = opendir(directory_path.c_str());
    if (directory == nullptr)
        return;
    while (const dirent* entry = readdir(directory)) {
        const std::string path = directory_path + "/" + entry->d_name;
        struct stat info;
        // A link may lead to a device that is listed under its own name: only what is a file itself.
        if (lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
            static_cast<uint64_t>(info.st_size) >= kMinMemberBytes && loop_device_over(info).empty())
            paths.push_back(path);
    }
    closedir(directory);
}

std::string directory_of(const std::string& path)
{
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos)
        return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

bool first_sight(const std::string& path, std::set<MemberIdentity>& seen)
{
    const auto identity = identify_member(path);
    return identity.ok() && seen.insert(*identity).second;
}

bool comes_before(const FoundMember& a, const FoundMember& b)
{
    return std::tie(a.superblock.volume_uuid, a.superblock.member_id, a.path) <
           std::tie(b.superblock.volume_uuid, b.superblock.member_id, b.path);
}

// Everything of one volume; `all` is consumed.
std::vector<FoundMember> only_volume(std::vector<FoundMember>& all, const Uuid& uuid)
{
    std::erase_if(all, [&](const FoundMember& found) { return found.superblock.volume_uuid != uuid; });
    return std::move(all);
}

Result<std::vector<FoundMember>> scan_for_path(const std::string& path, ScanOptions& options,
                                               std::string& why)
{
    CW_ASSIGN(const FoundMember given, inspect_member(path, why));
    struct stat info;
    std::string loop;
    if (stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) {
        options.directories.push_back(directory_of(path));
        loop = loop_device_over(info);
    }
    options.paths.insert(options.paths.begin(), loop.empty() ? path : loop);
    auto all = scan_members(options);
    auto members = only_volume(all, given.superblock.volume_uuid);
    return members;
}

std::string next_step(size_t denied_count)
{
    if (denied_count == 0)
        return "; name one of its members by path";
    return "; " + std::to_string(denied_count) + (denied_count == 1 ? " device" : " devices") +
           " may not be read: " + next_step_when_denied();
}

Result<std::vector<FoundMember>> scan_for_label(const std::string& label, const ScanOptions& options,
                                                std::string& why)
{
    size_t denied_count = 0;
    auto all = scan_members(options, &denied_count);
    std::set<Uuid> volumes;
    for (const FoundMember& found : all) {
        if (found.superblock.label == label)
            volumes.insert(found.superblock.volume_uuid);
    }
    if (volumes.empty()) {
        why = "no volume labelled '" + label + "' was found" + next_step(denied_count);
        return Err::kNotFound;
    }
    if (volumes.size() > 1) {
        why = "several volumes are labelled '" + label + "'; name the one you mean by uuid:";
        for (const Uuid& uuid : volumes)
            why += " " + uuid_text(uuid);
        return Err::kInvalid;
    }
    return only_volume(all, *volumes.begin());
}

Result<std::vector<FoundMember>> scan_for_uuid(const Uuid& uuid, const ScanOptions& options, std::string& why)
{
    size_t denied_count = 0;
    auto all = scan_members(options, &denied_count);
    auto members = only_volume(all, uuid);
    if (members.empty()) {
        why = "no member of volume " + uuid_text(uuid) + " was found" + next_step(denied_count);
        return Err::kNotFound;
    }
    return members;
}

}  // namespace

Result<FoundMember> inspect_member(const std::string& path, std::string& why)
{
    auto device = open_member(path, {.read_only = true, .exclusive = false}, why);
    if (!device.ok())
        return device.err();
    auto reading = read_rings(**device);
    if (!reading.ok()) {
        if (reading.err() == Err::kNotFound)
            why = path + " is not a member of a cowraid volume; check the name";
        else if (reading.err() == Err::kUnsupported)
            why = path + " was written by a newer version of cowraid; update this program";
        else
            why = path + ": its superblocks cannot be read; check the device";
        return reading.err();
    }
    CW_ASSERT(!reading->valid.empty());
    return FoundMember{path, std::move(reading->valid.front())};
}

std::vector<FoundMember> scan_members(const ScanOptions& options, size_t* denied_count)
{
    std::vector<std::string> paths = options.paths;
    if (options.block_devices == ScanOptions::BlockDevices::kSearch)
        add_block_devices(paths);
    for (const std::string& directory : options.directories)
        add_files_of(directory, paths);
    std::vector<FoundMember> found;
    std::set<MemberIdentity> seen;
    for (const std::string& path : paths) {
        if (!first_sight(path, seen))
            continue;
        std::string ignored;
        auto member = inspect_member(path, ignored);
        if (member.ok())
            found.push_back(member.take());
        else if (denied_count != nullptr &&
                 (member.err() == Err::kAccess || member.err() == Err::kNotPermitted))
            ++*denied_count;
    }
    std::sort(found.begin(), found.end(), comes_before);
    return found;
}

Result<std::vector<FoundMember>> scan_for(const std::string& name, ScanOptions options, std::string& why)
{
    if (name.starts_with("LABEL="))
        return scan_for_label(name.substr(6), options, why);
    const std::string text = name.starts_with("UUID=") ? name.substr(5) : name;
    if (const auto uuid = uuid_parse(text); uuid.ok())
        return scan_for_uuid(*uuid, options, why);
    if (name.starts_with("UUID=")) {
        why = "'" + text + "' is not a uuid; it has the form 01234567-89ab-cdef-0123-456789abcdef";
        return Err::kInvalid;
    }
    if (name.find('/') != std::string::npos)
        return scan_for_path(name, options, why);
    return scan_for_label(name, options, why);
}

}  // namespace cowraid
