// SPDX-License-Identifier: MIT
// mkfs.cowraid: makes a volume on devices or image files.
#include <argp.h>

#include <algorithm>
#include <cstdio>

#include "base/print.h"
#include "base/text.h"
#include "control/volume_json.h"
#include "device/open_member.h"
#include "format/profile.h"
#include "tools/common/program_start.h"
#include "tools/mkfs/mkfs_plan.h"

namespace cowraid {

namespace {

constexpr const char* kMkfs = "mkfs.cowraid";
constexpr int kJsonKey = 256;
constexpr int kSpareKey = 257;
constexpr int kCompressKey = 258;

constexpr argp_option kOptions[] = {
    {"data", 'd', "PROFILE", 0,
     "profile of data: single, raid0, raid1, raid1c3, raid1c4, raid10, raid5, raid6", 0},
    {"metadata", 'm', "PROFILE", 0, "profile of metadata (default: as safe as the data)", 0},
    {"label", 'L', "LABEL", 0, "label of the volume", 0},
    {"uuid", 'U', "UUID", 0, "uuid of the volume (default: random)", 0},
    {"chunk-size", 'c', "SIZE", 0, "bytes on one member before the next, 4K to 1M (default 64K)", 0},
    {"compress", kCompressKey, "zstd", 0,
     "compress files, as after cowraid property set MOUNTPOINT compression zstd; levels are the mount's", 0},
    {"spare", kSpareKey, "DEVICE", 0,
     "hold the device in reserve: it takes the place of a member that fails; may be given several times", 0},
    {"force", 'f', nullptr, 0, "overwrite devices that hold something, wiping its signature", 0},
    {"nodiscard", 'K', nullptr, 0, "do not discard the devices first: image files keep what they take", 0},
    {"quiet", 'q', nullptr, 0, "print errors only", 0},
    {"json", kJsonKey, nullptr, 0, "print one JSON object", 0},
    {},
};

error_t parse_option(int key, char* argument, argp_state* state)
{
    auto& arguments = *static_cast<MkfsArguments*>(state->input);
    switch (key) {
    case 'd':
        arguments.data_profile = argument;
        return 0;
    case 'm':
        arguments.metadata_profile = argument;
        return 0;
    case 'L':
        arguments.label = argument;
        return 0;
    case 'U':
        arguments.uuid = argument;
        return 0;
    case 'c':
        arguments.chunk_size = argument;
        return 0;
    case 'f':
        arguments.force = true;
        return 0;
    case 'K':
        arguments.nodiscard = true;
        return 0;
    case 'q':
        arguments.quiet = true;
        return 0;
    case kCompressKey:
        arguments.compression = argument;
        return 0;
    case kSpareKey:
        arguments.spares.emplace_back(argument);
        return 0;
    case kJsonKey:
        arguments.format = OutputFormat::kJson;
        return 0;
    case ARGP_KEY_ARG:
        arguments.devices.emplace_back(argument);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

// What was made, for both ways of printing it.
struct Made {
    MakeOptions options;
    MakeResult result;
    std::vector<std::string> paths;
    std::vector<uint64_t> sizes;
    std::vector<std::string> spares;
};

void print_summary(const Made& made)
{
    print_line(stdout, "cowraid %s", COWRAID_VERSION);
    print_empty_line(stdout);
    print_line(stdout, "Label:              %s",
               made.options.label.empty() ? "(null)" : made.options.label.c_str());
    print_line(stdout, "UUID:               %s", uuid_text(made.result.volume_uuid).c_str());
    print_line(stdout, "Node size:          %u", kNodeBytes);
    print_line(stdout, "Sector size:        %u", kBlockBytes);
    print_line(stdout, "Chunk size:         %u", made.options.chunk_bytes);
    print_line(stdout, "Filesystem size:    %s", size_text(made.result.raw_bytes).c_str());
    print_line(stdout, "Available:          %s", size_text(made.result.available_bytes).c_str());
    print_line(stdout, "Block group profiles:");
    print_line(stdout, "  Data:             %s", profile_title(made.options.data_profile));
    print_line(stdout, "  Metadata:         %s", profile_title(made.options.metadata_profile));
    print_line(stdout, "Checksum:           xxh3-64");
    if (made.options.compress)
        print_line(stdout, "Compression:        zstd");
    print_line(stdout, "Number of devices:  %zu", made.paths.size());
    print_line(stdout, "Devices:");
    print_line(stdout, "   ID        SIZE  PATH");
    for (size_t i = 0; i < made.paths.size(); ++i)
        print_line(stdout, "  %3zu  %10s  %s", i + 1, size_text(made.sizes[i]).c_str(),
                   made.paths[i].c_str());
    for (const std::string& spare : made.spares)
        print_line(stdout, "Spare:              %s", spare.c_str());
    print_empty_line(stdout);
}

void print_summary_json(const Made& made, const std::vector<std::string>& warnings)
{
    Json out = json_with_schema("mkfs");
    json_put_text(out.get(), "uuid", uuid_text(made.result.volume_uuid));
    json_put_text(out.get(), "label", made.options.label);
    json_put_integer(out.get(), "node_bytes", kNodeBytes);
    json_put_integer(out.get(), "block_bytes", kBlockBytes);
    json_put_integer(out.get(), "chunk_bytes", made.options.chunk_bytes);
    json_put_integer(out.get(), "raw_bytes", made.result.raw_bytes);
    json_put_integer(out.get(), "available_bytes", made.result.available_bytes);
    json_put_text(out.get(), "data_profile", profile_name(made.options.data_profile));
    json_put_text(out.get(), "metadata_profile", profile_name(made.options.metadata_profile));
    json_put_text(out.get(), "checksum", "xxh3-64");
    json_put_text(out.get(), "compression", made.options.compress ? "zstd" : "");
    Json members = json_make_array();
    for (size_t i = 0; i < made.paths.size(); ++i) {
        Json member = json_make_object();
        json_put_integer(member.get(), "id", i + 1);
        json_put_text(member.get(), "path", made.paths[i]);
        json_put_integer(member.get(), "size_bytes", made.sizes[i]);
        json_array_append_new(members.get(), member.release());
    }
    json_put(out.get(), "members", std::move(members));
    Json spares = json_make_array();
    for (const std::string& spare : made.spares)
        json_append_text(spares.get(), spare);
    json_put(out.get(), "spares", std::move(spares));
    Json list = json_make_array();
    for (const std::string& warning : warnings)
        json_append_text(list.get(), warning);
    json_put(out.get(), "warnings", std::move(list));
    print_json(out.get());
}

Result<Made> make(const MkfsArguments& arguments, MakeOptions options, std::vector<std::string>& warnings,
                  std::string& why)
{
    CW_ASSIGN(std::vector<NewMember> devices, open_mkfs_devices(arguments, why));
    if (std::string warning = warning_of_readers(devices); !warning.empty())
        warnings.push_back(std::move(warning));
    std::vector<MakeDevice> sizes, spare_sizes;
    for (const NewMember& device : devices)
        (sizes.size() < arguments.devices.size() ? sizes : spare_sizes)
            .push_back({device.path, device.size_bytes});
    CW_TRY(check_make(options, sizes, spare_sizes, why));
    CW_TRY(check_uuid_is_new(options.volume_uuid, devices, why));
    Made made{.options = std::move(options), .result = {}, .paths = {}, .sizes = {}, .spares = {}};
    // Nothing is written before every device has passed.
    std::vector<std::unique_ptr<BlockDevice>> members, spares;
    for (NewMember& device : devices) {
        const bool spare = members.size() == arguments.devices.size();
        CW_TRY(wipe_old_signatures(device, why));
        (spare ? made.spares : made.paths).push_back(device.path);
        if (!spare)
            made.sizes.push_back(device.size_bytes);
        CW_ASSIGN(auto member, make_device_from_fd(std::move(device.fd), device.path, {}, why));
        (spare ? spares : members).push_back(std::move(member));
    }
    if (!arguments.nodiscard) {
        for (const auto* const list : {&members, &spares})
            for (const std::unique_ptr<BlockDevice>& device : *list)
                discard_all(*device);
    }
    CW_ASSIGN(made.result, make_volume(members, made.options, why, std::move(spares)));
    return made;
}

int run(int argc, char** argv)
{
    static const argp parser = {
        .options = kOptions,
        .parser = parse_option,
        .args_doc = "DEVICE...",
        .doc = "Make a cowraid volume on block devices or image files, mixed as you like.",
        .children = nullptr,
        .help_filter = nullptr,
        .argp_domain = nullptr};
    argp_err_exit_status = kExitUsage;
    MkfsArguments arguments;
    if (argp_parse(&parser, argc, argv, 0, nullptr, &arguments) != 0)
        return kExitUsage;
    std::vector<std::string> warnings;
    std::string why;
    auto options = plan_volume(arguments, warnings, why);
    if (!options.ok()) {
        print_error(kMkfs, arguments.format, options.err(), why);
        return kExitUsage;
    }
    const auto made = make(arguments, options.take(), warnings, why);
    if (!arguments.quiet) {
        for (const std::string& warning : warnings)
            print_warning(kMkfs, warning);
    }
    if (!made.ok()) {
        print_error(kMkfs, arguments.format, made.err(), why);
        return kExitFailed;
    }
    if (arguments.format == OutputFormat::kJson)
        print_summary_json(*made, warnings);
    else if (!arguments.quiet)
        print_summary(*made);
    return kExitOk;
}

}  // namespace

}  // namespace cowraid

const char* argp_program_version = "mkfs.cowraid " COWRAID_VERSION;

int main(int argc, char** argv)
{
    cowraid::start_program(cowraid::kExitFailed);
    return cowraid::run(argc, argv);
}
