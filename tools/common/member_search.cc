// SPDX-License-Identifier: MIT
#include "tools/common/member_search.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "control/mount_table.h"
#include "device/lineage.h"
#include "device/open_member.h"
#include "device/signature.h"

namespace cowraid {

namespace {

bool contains(const std::vector<std::string>& list, const std::string& text)
{
    return std::find(list.begin(), list.end(), text) != list.end();
}

std::vector<std::string> distinct_paths(const std::vector<std::string>& paths)
{
    std::vector<std::string> out;
    std::set<MemberIdentity> seen;
    for (const std::string& path : paths) {
        const auto identity = identify_member(path);
        if (!identity.ok() || seen.insert(*identity).second)
            out.push_back(absolute_path(path));
    }
    return out;
}

// Whether a named device that fails like this may be done without.
bool may_skip(const VolumeMembers& volume, Err err)
{
    return volume.unusable == Unusable::kSkip &&
           (err == Err::kNotFound || err == Err::kIo || err == Err::kWouldWait);
}

// Of the paths in volume.named those that are members; sorts out the others.
Result<std::vector<FoundMember>> inspect_named(VolumeMembers& volume, std::string& why)
{
    std::vector<FoundMember> named;
    std::vector<InspectedMember> inspected = inspect_members(volume.named);
    for (size_t index = 0; index < inspected.size(); ++index) {
        const std::string& path = volume.named[index];
        auto& [member, problem, silent] = inspected[index];
        if (member.ok()) {
            named.push_back(member.take());
            continue;
        }
        if (why.empty())
            why = problem;
        if (member.err() == Err::kNotFound && identify_member(path).ok()) {
            volume.strangers.push_back(path);
        } else if (may_skip(volume, member.err())) {
            volume.warnings.push_back(problem + ": left out");
        } else {
            why = problem;
            return member.err();
        }
    }
    return named;
}

// Of named members of several volumes the most count where the others may be skipped: one was given to
// another volume meanwhile.
void skip_other_volumes(VolumeMembers& volume, std::vector<FoundMember>& named)
{
    const auto count_of = [&](const Uuid& uuid) {
        return static_cast<size_t>(std::count_if(named.begin(), named.end(), [&](const FoundMember& member) {
            return member.superblock.volume_uuid == uuid;
        }));
    };
    const auto most = std::find_if(named.begin(), named.end(), [&](const FoundMember& member) {
        return count_of(member.superblock.volume_uuid) * 2 > named.size();
    });
    if (volume.unusable != Unusable::kSkip || most == named.end())
        return;
    const Uuid uuid = most->superblock.volume_uuid;
    for (const FoundMember& member : named)
        if (member.superblock.volume_uuid != uuid)
            volume.warnings.push_back(member.path + " belongs to volume " +
                                      uuid_text(member.superblock.volume_uuid) + ": left out");
    std::erase_if(named, [&](const FoundMember& member) { return member.superblock.volume_uuid != uuid; });
}

Status check_same_volume(const FoundMember& reference, const std::vector<FoundMember>& named,
                         std::string& why)
{
    for (const FoundMember& member : named) {
        if (member.superblock.volume_uuid == reference.superblock.volume_uuid)
            continue;
        why = member.path + " belongs to volume " + uuid_text(member.superblock.volume_uuid) + ", " +
              reference.path + " to " + uuid_text(reference.superblock.volume_uuid) +
              "; name members of one volume";
        return Err::kInvalid;
    }
    return {};
}

bool has_member(const std::vector<FoundMember>& members, MemberId id)
{
    return std::any_of(members.begin(), members.end(),
                       [&](const FoundMember& member) { return member.superblock.member_id == id; });
}

// Drops members that were only found and stand for the same member as a named one.
void prefer_named(VolumeMembers& volume, const std::vector<FoundMember>& named)
{
    std::erase_if(volume.members, [&](const FoundMember& found) {
        if (contains(volume.named, found.path))
            return false;
        return has_member(named, found.superblock.member_id);
    });
}

Result<UniqueFd> open_with(const FoundMember& member, MemberAccess access, std::string& why)
{
    const std::string& path = member.path;
    const OpenOptions reading{.read_only = true, .owner = member.owner};
    switch (access) {
    case MemberAccess::kReadWrite:
        return open_exclusively(path, {.owner = member.owner}, why);
    case MemberAccess::kReadOnly:
        return open_exclusively(path, reading, why);
    case MemberAccess::kLook:
        return open_member_fd(path, {.read_only = true, .exclusive = false, .owner = member.owner}, why);
    case MemberAccess::kReadWriteIfPossible:
        break;
    }
    auto fd = open_exclusively(path, {.owner = member.owner}, why);
    const bool protected_from_writing = fd.err() == Err::kReadOnly || fd.err() == Err::kAccess ||
                                        fd.err() == Err::kNotPermitted || fd.err() == Err::kFileTooBig;
    if (fd.ok() || !protected_from_writing)
        return fd;
    return open_exclusively(path, reading, why);
}

// What was made of a member meanwhile, such as "ext4"; empty when it still is one.
std::string foreign_content_of(const FoundMember& member)
{
    std::string ignored;
    const auto device =
        open_member(member.path, {.read_only = true, .exclusive = false, .owner = member.owner}, ignored);
    if (!device.ok())
        return {};
    const auto content = (*device)->foreign_content(ContentArea::kHead);
    return content.ok() ? *content : std::string();
}

// Whether a volume can be used without a device of it that does not open and holds `content`.
bool may_leave_out(const VolumeMembers& volume, const FoundMember& member, const std::string& content,
                   Err err)
{
    if (member.superblock.on_spare())
        return true;
    if (contains(volume.strangers, member.path))
        return volume.unusable == Unusable::kSkip;
    const bool named = contains(volume.named, member.path);
    if (!content.empty())
        return !named || volume.unusable == Unusable::kSkip;
    return err != Err::kBusy && err != Err::kFileTooBig && (!named || may_skip(volume, err));
}

}  // namespace

Result<UniqueFd> open_exclusively(const std::string& path, OpenOptions options, std::string& why)
{
    options.under_mount = has_block_mount(path);
    auto fd = open_member_fd(path, options, why);
    if (!fd.ok() || !options.under_mount)
        return fd;
    // It might be that of another filesystem over FUSE, made on what was a member once.
    const auto signature = probe_signature(fd->get());
    if (signature.ok() && *signature == kMemberSignature)
        return fd;
    const bool is_known = signature.ok() && !signature->empty();
    why = path + " is mounted as " + (is_known ? *signature : "something else") + "; unmount it first";
    return Err::kBusy;
}

Result<VolumeMembers> find_volume(const VolumeSpec& spec, Unusable unusable, std::string& why)
{
    VolumeMembers volume;
    volume.unusable = unusable;
    volume.named = distinct_paths(spec.paths);
    CW_ASSIGN(std::vector<FoundMember> named, inspect_named(volume, why));
    skip_other_volumes(volume, named);
    if (spec.name.empty() && named.empty())
        return volume.strangers.empty() ? Err::kNotFound : Err::kInvalid;
    if (spec.name.empty() && spec.paths.size() > 1) {
        CW_TRY(check_same_volume(named.front(), named, why));
        volume.members = named;
    } else {
        const std::string& name = spec.name.empty() ? named.front().path : spec.name;
        CW_ASSIGN(ScanResult found, scan_for(name, {.directories = {}, .paths = volume.named}, why));
        volume.members = std::move(found.members);
        for (const std::string& note : found.notes)
            if (!contains(volume.warnings, note))
                volume.warnings.push_back(note);
        if (!volume.members.empty())
            CW_TRY(check_same_volume(volume.members.front(), named, why));
        prefer_named(volume, named);
    }
    for (FoundMember& member : volume.members)
        member.named = has_member(named, member.superblock.member_id);
    if (volume.members.empty()) {
        why = "no member of the volume was found; name one of its members by path";
        return Err::kNotFound;
    }
    why.clear();
    volume.uuid = volume.members.front().superblock.volume_uuid;
    volume.label = volume.members.front().superblock.label;
    return volume;
}

std::string unnamed_members_text(const VolumeMembers& volume)
{
    if (volume.named.size() < 2)
        return {};
    std::string text, ignored;
    const auto found = scan_for("UUID=" + uuid_text(volume.uuid), {}, ignored);
    if (!found.ok())
        return {};
    const Superblock* head = nullptr;
    for (const FoundMember& member : found->members)
        if (head == nullptr || newer_commit(member.superblock, *head))
            head = &member.superblock;
    for (const FoundMember& member : found->members) {
        const Superblock& own = member.superblock;
        const MemberRecord* const line = head->member(own.member_id);
        // Not one that was replaced.
        const bool counts = !own.on_spare() && line != nullptr && own.member(own.member_id) != nullptr &&
                            own.member(own.member_id)->uuid == line->uuid;
        if (counts && !has_member(volume.members, own.member_id))
            text += "; member " + std::to_string(own.member_id.value) + " is " + member.path +
                    ", which was not named";
    }
    return text;
}

Result<std::vector<OpenedMember>> open_members(const VolumeMembers& volume, MemberAccess access,
                                               std::vector<std::string>& warnings, std::string& why)
{
    warnings.insert(warnings.end(), volume.warnings.begin(), volume.warnings.end());
    std::vector<FoundMember> members = volume.members;
    for (const std::string& path : volume.strangers)
        members.push_back({.path = path});
    std::vector<OpenedMember> opened;
    for (const FoundMember& member : members) {
        const std::string& path = member.path;
        auto fd = open_with(member, access, why);
        if (fd.ok()) {
            opened.push_back({.path = path, .fd = fd.take(), .named = member.named});
            continue;
        }
        const std::string content = foreign_content_of(member);
        if (!may_leave_out(volume, member, content, fd.err()))
            return fd.err();
        if (!content.empty())
            why = path + " holds " + content;
        warnings.push_back(why + ": left out");
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

AssemblyOptions lenient_assembly(const VolumeMembers& volume)
{
    AssemblyOptions options{.strangers = Strangers::kSkip, .named = {}};
    for (const FoundMember& member : volume.members)
        if (member.named)
            options.named.push_back(member.path);
    return options;
}

}  // namespace cowraid
