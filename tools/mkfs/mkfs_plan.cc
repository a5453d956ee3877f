// SPDX-License-Identifier: MIT
#include "tools/mkfs/mkfs_plan.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "device/open_member.h"
#include "device/scan.h"
#include "format/profile.h"
#include "tools/common/new_member.h"
#include "tools/common/report_error.h"

namespace cowraid {

namespace {

ProfileId default_data_profile(size_t device_count)
{
    switch (device_count) {
    case 1:
        return ProfileId::kSingle;
    case 2:
        return ProfileId::kRaid1;
    case 3:
        return ProfileId::kRaid5;
    default:
        return ProfileId::kRaid6;
    }
}

std::vector<std::string> profile_names()
{
    std::vector<std::string> names;
    for (const Profile& profile : profiles())
        names.emplace_back(profile.name);
    return names;
}

Result<const Profile*> parse_profile(const std::string& text, size_t device_count, std::string& why)
{
    std::string name = text;
    for (char& c : name)
        c = static_cast<char>(tolower(c));
    const Profile* const profile = find_profile(name);
    if (profile == nullptr)
        return invalid(why, "'" + text + "' is not a profile; there are " + join_words(profile_names()));
    if (device_count < profile->min_members)
        return invalid(why, text + " needs at least " + std::to_string(profile->min_members) + " devices, " +
                                std::to_string(device_count) + " named; add devices or choose another");
    return profile;
}

Status set_profiles(const MkfsArguments& arguments, MakeOptions& options, std::vector<std::string>& warnings,
                    std::string& why)
{
    const size_t count = arguments.devices.size();
    const char* const data_name = find_profile(default_data_profile(count))->name;
    CW_ASSIGN(const Profile* data, parse_profile(arguments.data_profile.value_or(data_name), count, why));
    const char* const metadata_name = find_profile(default_metadata_profile(data->id, count))->name;
    CW_ASSIGN(const Profile* metadata,
              parse_profile(arguments.metadata_profile.value_or(metadata_name), count, why));
    options.data_profile = data->id;
    options.metadata_profile = metadata->id;
    if (metadata->tolerance < data->tolerance)
        warnings.push_back(std::string("metadata (") + metadata->name + ") survives the loss of " +
                           std::to_string(metadata->tolerance) + " devices, data (" + data->name + ") of " +
                           std::to_string(data->tolerance) + ": the volume is only as safe as its metadata");
    return {};
}

Status set_chunk(const MkfsArguments& arguments, MakeOptions& options, std::string& why)
{
    if (!arguments.chunk_size.has_value())
        return {};
    const auto bytes = parse_size(*arguments.chunk_size);
    if (!bytes.ok() || *bytes < kMinChunkBytes || *bytes > kMaxChunkBytes || !is_power_of_two(*bytes))
        return invalid(why, "chunk size '" + *arguments.chunk_size +
                                "': give a power of two from 4K to 1M, such as 64K");
    options.chunk_bytes = static_cast<uint32_t>(*bytes);
    return {};
}

// That of the property of the root directory.
Status set_compression(const MkfsArguments& arguments, MakeOptions& options, std::string& why)
{
    const std::string& value = arguments.compression.value_or("none");
    options.compress = value == "zstd";
    if (options.compress || value == "none" || value == "no")
        return {};
    if (value.starts_with("zstd:"))
        return invalid(why, "compression '" + value +
                                "': a level is the mount's (-o compress=zstd:LEVEL); give zstd");
    return invalid(why, "compression '" + value + "': give zstd or none");
}

}  // namespace

Result<MakeOptions> plan_volume(const MkfsArguments& arguments, std::vector<std::string>& warnings,
                                std::string& why)
{
    MakeOptions options;
    options.root_uid = geteuid();
    options.root_gid = getegid();
    if (arguments.devices.empty())
        return invalid(why, "name at least one device");
    if (arguments.devices.size() > kMaxMembers)
        return invalid(why, "a volume has at most " + std::to_string(kMaxMembers) + " members");
    CW_TRY(set_profiles(arguments, options, warnings, why));
    CW_TRY(set_chunk(arguments, options, why));
    CW_TRY(set_compression(arguments, options, why));
    options.label = arguments.label.value_or("");
    if (!label_is_valid(options.label) || options.label.find('/') != std::string::npos)
        return invalid(why, "the label must be UTF-8, shorter than " + std::to_string(kLabelBytes) +
                                " bytes, without slashes and control characters");
    if (arguments.uuid.has_value()) {
        const auto uuid = uuid_parse(*arguments.uuid);
        if (!uuid.ok() || *uuid == Uuid{})
            return invalid(why, "'" + *arguments.uuid +
                                    "' is not a uuid; it looks like 01234567-89ab-cdef-0123-456789abcdef");
        options.volume_uuid = *uuid;
    }
    return options;
}

Result<std::vector<NewMember>> open_mkfs_devices(const MkfsArguments& arguments, std::string& why)
{
    std::vector<std::string> paths = arguments.devices;
    paths.insert(paths.end(), arguments.spares.begin(), arguments.spares.end());
    CW_TRY(check_named_once(paths, why));
    std::vector<NewMember> devices;
    for (const std::string& path : paths) {
        CW_ASSIGN(NewMember device, open_new_member(path, arguments.force, why));
        devices.push_back(std::move(device));
    }
    return devices;
}

Status check_uuid_is_new(const Uuid& uuid, const std::vector<NewMember>& devices, std::string& why)
{
    if (uuid == Uuid{})
        return {};
    for (const FoundMember& found : scan_members({}).members) {
        const bool ours = std::any_of(devices.begin(), devices.end(),
                                      [&](const NewMember& device) { return device.path == found.path; });
        if (found.superblock.volume_uuid != uuid || ours)
            continue;
        why = "volume " + uuid_text(uuid) + " exists already, on " + found.path + "; choose another uuid";
        return Err::kExists;
    }
    return {};
}

}  // namespace cowraid
