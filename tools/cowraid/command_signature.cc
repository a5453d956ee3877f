// SPDX-License-Identifier: MIT
// cowraid device probe, device wipe: what a device is known by
#include "base/print.h"
#include "control/volume_json.h"
#include "device/open_member.h"
#include "device/scan.h"
#include "device/signature.h"
#include "tools/common/udev_properties.h"
#include "tools/cowraid/command.h"
#include "tools/mount/confinement.h"

namespace cowraid {

namespace {

struct WipeArguments {
    CommandOptions common;
    bool force = false;
};

// A device to be wiped.
struct Wiped {
    std::string path, signature;
    UniqueFd fd;
};

constexpr argp_option kWipeOptions[] = {
    {"force", 'f', nullptr, 0, "wipe also what is no member of cowraid", 0},
    {},
};

error_t parse_wipe_option(int key, char*, argp_state* state)
{
    auto& arguments = *static_cast<WipeArguments*>(state->input);
    return parse_flags(key, state, arguments.common, {{'f', &arguments.force}});
}

bool parse_wipe(int argc, char** argv, WipeArguments& arguments)
{
    return parse_command(
        argc, argv,
        {kWipeOptions, parse_wipe_option, "DEVICE...",
         "Make each DEVICE unknown: overwrite all superblocks of a member that is not in use. Its volume "
         "is not asked whether it can do without it, and what the member held cannot be used again."},
        &arguments);
}

// What somebody made of a member who did not know it counts, and not what is left of the member. udev asks
// about every medium that is plugged in: nothing of it is read before this process is confined.
Result<FoundMember> probe_member(const std::string& path, std::string& why)
{
    CW_ASSIGN(const auto device, open_member(path, {.read_only = true, .exclusive = false}, why));
    (void)Confinement().enter();
    const auto foreign = device->foreign_content(ContentArea::kHead);
    if (!foreign.ok())
        why = path + " cannot be read; check the device";
    else if (!foreign->empty())
        why = path + " holds " + *foreign + " and is no member of cowraid";
    if (!foreign.ok() || !foreign->empty())
        return foreign.ok() ? Err::kNotFound : foreign.err();
    return inspect_device(*device, why);
}

Result<Wiped> open_to_wipe(const std::string& path, bool force, std::string& why)
{
    Wiped device{.path = path, .signature = {}, .fd = {}};
    CW_ASSIGN(device.fd, open_member_fd(path, {.read_only = false, .exclusive = true}, why));
    auto signature = probe_signature(device.fd.get());
    if (!signature.ok()) {
        why = path + " cannot be read; check the device";
        return Err::kIo;
    }
    device.signature = signature.take();
    if (!force && !device.signature.empty() && device.signature != kMemberSignature) {
        why = path + " holds " + device.signature + "; to wipe that use -f";
        return Err::kExists;
    }
    return device;
}

Status wipe(const Wiped& device, std::string& why)
{
    if (device.signature.empty() || wipe_signatures(device.fd.get()).ok())
        return {};
    why = device.path + " (" + device.signature + ") cannot be wiped; check the device";
    return Err::kIo;
}

void print_wiped(const std::vector<Wiped>& devices, const CommandOptions& options)
{
    Json list = json_make_array();
    for (const Wiped& device : devices) {
        Json line = json_make_object();
        json_put_text(line.get(), "path", device.path);
        json_put_text(line.get(), "held", device.signature);
        json_array_append_new(list.get(), line.release());
        if (options.format == OutputFormat::kText)
            print_line(stdout, "%s: %s", device.path.c_str(),
                       device.signature.empty() ? "nothing known is on it"
                                                : ("wiped, it held " + device.signature).c_str());
    }
    if (options.format == OutputFormat::kText)
        return;
    Json out = json_with_schema("device-wipe");
    json_put(out.get(), "devices", std::move(list));
    print_json(out.get());
}

}  // namespace

int command_device_probe(int argc, char** argv, CommandOptions options)
{
    if (!parse_common(argc, argv, "DEVICE",
                      "Print what udev wants to know of a member, as NAME=VALUE. Fails with 1 when DEVICE is "
                      "no member, or something else was made of it.",
                      options) ||
        !has_one_operand(options, "the device"))
        return kExitUsage;
    std::string why;
    const auto member = probe_member(options.operands.front(), why);
    if (!member.ok())
        return command_failed(options, member.err(), why);
    Json out = json_with_schema("device-probe");
    for (const auto& [name, value] : udev_properties(member->superblock)) {
        json_put_text(out.get(), name.c_str(), value);
        if (options.format == OutputFormat::kText)
            print_line(stdout, "%s=%s", name.c_str(), value.c_str());
    }
    if (options.format == OutputFormat::kJson)
        print_json(out.get());
    return kExitOk;
}

int command_device_wipe(int argc, char** argv, CommandOptions common)
{
    WipeArguments arguments{.common = std::move(common)};
    if (!parse_wipe(argc, argv, arguments))
        return kExitUsage;
    const CommandOptions& options = arguments.common;
    std::string why;
    if (options.operands.empty()) {
        print_error(kProgram, options.format, Err::kInvalid, "name the devices");
        return kExitUsage;
    }
    // Nothing is written before every device has passed.
    std::vector<Wiped> devices;
    for (const std::string& path : options.operands) {
        auto device = open_to_wipe(path, arguments.force, why);
        if (!device.ok())
            return command_failed(options, device.err(), why);
        devices.push_back(device.take());
    }
    for (const Wiped& device : devices)
        if (const Status status = wipe(device, why); !status.ok())
            return command_failed(options, status.err(), why);
    print_wiped(devices, options);
    return kExitOk;
}

}  // namespace cowraid
