// SPDX-License-Identifier: MIT
#include "device/scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <set>
#include <tuple>

#include "base/text.h"
#include "device/ask_apart.h"
#include "device/loop_backing.h"
#include "device/open_member.h"
#include "device/superblock_store.h"

namespace cowraid {

namespace {

// A disk that stands still needs some seconds to start.
constexpr uint64_t kAnswerMs = 10'000;
// Processes at a time.
constexpr size_t kAskedAtOnce = 64;

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

// Where a member may be.
struct Place {
    std::string path;
    std::optional<uid_t> owner;  // as FoundMember::owner
    bool foreign = false;
};

void add_block_devices(std::vector<Place>& places)
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
        places.push_back({.path = std::move(path)});
    }
    std::fclose(partitions);
}

// Whether a file lies there, and no link or mount point: what is mounted, perhaps by a daemon that stands
// still, is not asked.
bool is_plain_file(const std::string& path)
{
    struct statx info { };
    return statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC,
                 STATX_TYPE, &info) == 0 &&
           S_ISREG(info.stx_mode) && (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) == 0;
}

void add_files_of(const ScanDirectory& searched, std::vector<Place>& places)
{
    DIR* directory = opendir(searched.path.c_str());
    if (directory == nullptr)
        return;
    while (const dirent* entry = readdir(directory)) {
        const std::string path = searched.path + "/" + entry->d_name;
        struct stat info;
        // A link may lead to a device that is listed under its own name: only what is a file itself.
        if (is_plain_file(path) && lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
            static_cast<uint64_t>(info.st_size) >= kMinMemberBytes && loop_device_over(info).empty())
            places.push_back({.path = path,
                              .owner = info.st_uid,
                              .foreign = info.st_uid != searched.owner && info.st_uid != 0});
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

void keep_volume(std::vector<FoundMember>& members, const Uuid& uuid)
{
    std::erase_if(members, [&](const FoundMember& found) { return found.superblock.volume_uuid != uuid; });
}

ScanResult only_volume(ScanResult all, const Uuid& uuid)
{
    keep_volume(all.members, uuid);
    keep_volume(all.foreign, uuid);
    for (const FoundMember& found : all.foreign)
        all.notes.push_back(found.path + " belongs to user " + std::to_string(*found.owner) +
                            ": left out; name it if it is a member");
    return all;
}

// Whether only root and `owner` put files there.
bool is_private_to(const struct stat& directory, uid_t owner)
{
    return (directory.st_mode & (S_IWGRP | S_IWOTH)) == 0 &&
           (directory.st_uid == owner || directory.st_uid == 0);
}

Result<ScanResult> scan_for_path(const std::string& path, ScanOptions& options, std::string& why)
{
    CW_ASSIGN(const FoundMember given, inspect_member(path, why));
    struct stat info;
    std::string loop, note;
    if (stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) {
        const ScanDirectory beside{.path = directory_of(path), .owner = info.st_uid};
        struct stat directory;
        if (stat(beside.path.c_str(), &directory) == 0 && is_private_to(directory, beside.owner))
            options.directories.push_back(beside);
        else if (given.superblock.members.size() > 1)
            note = "others than the owner of " + path + " can put files into " + beside.path +
                   ": it is not searched; name all members";
        loop = loop_device_over(info);
    }
    options.paths.insert(options.paths.begin(), loop.empty() ? path : loop);
    ScanResult found = only_volume(scan_members(options), given.superblock.volume_uuid);
    if (!note.empty())
        found.notes.push_back(note);
    return found;
}

constexpr size_t kDeniedNamed = 8;

std::string next_step(const ScanResult& found)
{
    std::string text = found.silent.empty() ? "" : "; no answer came from " + join_words(found.silent);
    if (found.denied.empty())
        return text + "; name one of its members by path";
    const std::string some = found.denied.size() > kDeniedNamed
                                 ? std::to_string(found.denied.size()) + " devices"
                                 : join_words(found.denied);
    return text + "; " + some + " may not be read: " + next_step_when_denied();
}

// What root may not read is none of the volume's devices: they may come yet.
Err denied_to_user(const ScanResult& found)
{
    return !found.denied.empty() && geteuid() != 0 ? Err::kAccess : Err::kNotFound;
}

Result<ScanResult> scan_for_label(const std::string& label, const ScanOptions& options, std::string& why)
{
    ScanResult all = scan_members(options);
    std::set<Uuid> volumes;
    for (const FoundMember& found : all.members) {
        if (found.superblock.label == label)
            volumes.insert(found.superblock.volume_uuid);
    }
    if (volumes.empty()) {
        why = "no volume labelled '" + label + "' was found" + next_step(all);
        return denied_to_user(all);
    }
    if (volumes.size() > 1) {
        why = "several volumes are labelled '" + label + "'; name the one you mean by uuid:";
        for (const Uuid& uuid : volumes)
            why += " " + uuid_text(uuid);
        return Err::kInvalid;
    }
    return only_volume(std::move(all), *volumes.begin());
}

Result<ScanResult> scan_for_uuid(const Uuid& uuid, const ScanOptions& options, std::string& why)
{
    ScanResult found = only_volume(scan_members(options), uuid);
    if (found.members.empty()) {
        why = "no member of volume " + uuid_text(uuid) + " was found" + next_step(found);
        return denied_to_user(found);
    }
    return found;
}

Result<FoundMember> inspect_place(const Place& place, std::string& why)
{
    CW_ASSIGN(const auto device,
              open_member(place.path, {.read_only = true, .exclusive = false, .owner = place.owner}, why));
    CW_ASSIGN(FoundMember member, inspect_device(*device, why));
    member.owner = place.owner;
    return member;
}

// What inspect_place() said, for another process: the error, then the superblock or why there is none.
std::vector<std::byte> encode_inspected(const Place& place)
{
    std::string why;
    const Result<FoundMember> member = inspect_place(place, why);
    const std::span text = std::as_bytes(std::span(why));
    std::vector<std::byte> bytes(text.begin(), text.end());
    if (member.ok())
        bytes = encode_superblock(member->superblock);
    bytes.insert(bytes.begin(), static_cast<std::byte>(member.err()));
    return bytes;
}

Result<FoundMember> decode_inspected(const Place& place, std::span<const std::byte> bytes, std::string& why)
{
    why = place.path + " cannot be looked at: the process that did so ended; check the system log";
    if (bytes.empty())
        return Err::kIo;
    const std::span content = bytes.subspan(1);
    if (const auto err = static_cast<Err>(bytes[0]); err != Err::kOk) {
        why.assign(reinterpret_cast<const char*>(content.data()), content.size());
        return err;
    }
    CW_ASSIGN(Superblock superblock, decode_superblock(content));
    why.clear();
    return FoundMember{.path = place.path, .superblock = std::move(superblock), .owner = place.owner};
}

std::vector<InspectedMember> inspect_places(std::span<const Place> places)
{
    std::vector<InspectedMember> all;
    while (all.size() < places.size()) {
        AskApart questions;
        const std::span some = places.subspan(all.size(), std::min(kAskedAtOnce, places.size() - all.size()));
        for (const Place& place : some)
            questions.ask(place.path, [&] { return encode_inspected(place); });
        const std::vector<AskApart::Answer> answers = questions.wait(kAnswerMs);
        for (size_t index = 0; index < some.size(); ++index) {
            const Place& place = some[index];
            std::string why = place.path + " does not answer; dmesg may say why";
            const bool silent = !answers[index];
            auto member =
                silent ? Result<FoundMember>(Err::kWouldWait) : decode_inspected(place, *answers[index], why);
            all.push_back({.member = std::move(member), .why = std::move(why), .silent = silent});
        }
    }
    return all;
}

}  // namespace

Result<FoundMember> inspect_device(BlockDevice& device, std::string& why)
{
    const std::string path = device.name();
    auto reading = read_rings(device);
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
    return FoundMember{.path = path, .superblock = std::move(reading->valid.front())};
}

std::vector<InspectedMember> inspect_members(std::span<const std::string> paths)
{
    std::vector<Place> places;
    for (const std::string& path : paths)
        places.push_back({.path = path});
    return inspect_places(places);
}

Result<FoundMember> inspect_member(const std::string& path, std::string& why)
{
    InspectedMember inspected = std::move(inspect_members({&path, 1}).front());
    why = std::move(inspected.why);
    return std::move(inspected.member);
}

ScanResult scan_members(const ScanOptions& options)
{
    std::vector<Place> places;
    for (const std::string& path : options.paths)
        places.push_back({.path = path});
    if (options.block_devices == ScanOptions::BlockDevices::kSearch)
        add_block_devices(places);
    for (const ScanDirectory& directory : options.directories)
        add_files_of(directory, places);
    ScanResult result;
    std::set<MemberIdentity> seen;
    std::erase_if(places, [&](const Place& place) { return !first_sight(place.path, seen); });
    std::vector<InspectedMember> inspected = inspect_places(places);
    for (size_t index = 0; index < places.size(); ++index) {
        InspectedMember& one = inspected[index];
        const std::string& path = places[index].path;
        if (one.member.ok()) {
            (places[index].foreign ? result.foreign : result.members).push_back(one.member.take());
        } else if (one.silent) {
            result.silent.push_back(path);
            result.notes.push_back(one.why + ": left out");
        } else if (one.member.err() == Err::kAccess || one.member.err() == Err::kNotPermitted) {
            result.denied.push_back(path);
        }
    }
    std::sort(result.members.begin(), result.members.end(), comes_before);
    return result;
}

Result<ScanResult> scan_for(const std::string& name, ScanOptions options, std::string& why)
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
