// SPDX-License-Identifier: MIT
// cowraid device add, device remove, filesystem resize
#include "base/print.h"
#include "tools/cowraid/mounted_command.h"

namespace cowraid {

namespace {

struct DeviceArguments {
    CommandOptions common;
    bool force = false;
    bool background = false;
};

constexpr argp_option kAddOptions[] = {
    {"force", 'f', nullptr, 0, "overwrite devices that hold something, wiping their signatures", 0},
    {},
};
constexpr argp_option kRemoveOptions[] = {
    {"background", kKeyBackground, nullptr, 0, "do not wait for its end", 0},
    {"bg", kKeyBackground, nullptr, OPTION_ALIAS, nullptr, 0},
    {},
};

error_t parse_device_option(int key, char*, argp_state* state)
{
    auto& arguments = *static_cast<DeviceArguments*>(state->input);
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &arguments.common;
        return 0;
    case 'f':
        arguments.force = true;
        return 0;
    case kKeyBackground:
        arguments.background = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

bool parse_device(int argc, char** argv, const argp_option* options, const char* operands, const char* doc,
                  DeviceArguments& arguments)
{
    static const argp_child children[] = {{&kCommonParser, 0, nullptr, 0}, {}};
    const argp parser = {.options = options,
                         .parser = parse_device_option,
                         .args_doc = operands,
                         .doc = doc,
                         .children = children,
                         .help_filter = nullptr,
                         .argp_domain = nullptr};
    return argp_parse(&parser, argc, argv, 0, nullptr, &arguments) == 0;
}

// The last operand names the volume where there are several. What is left is for the command.
std::vector<std::string> take_operands(CommandOptions& options)
{
    std::vector<std::string> rest = std::move(options.operands);
    options.operands.clear();
    if (rest.size() > 1) {
        options.operands.push_back(std::move(rest.back()));
        rest.pop_back();
    }
    return rest;
}

int nothing_named(const DeviceArguments& arguments, const char* what)
{
    print_error(kProgram, arguments.common.format, Err::kInvalid, what);
    return kExitUsage;
}

// The one that was named, or all in service.
Result<std::vector<MemberInfo>> members_to_grow(ControlClient& client, const std::string& name,
                                                std::string& why)
{
    std::vector<MemberInfo> members;
    if (!name.empty()) {
        CW_ASSIGN(MemberInfo member, find_member(client, name, why));
        members.push_back(std::move(member));
        return members;
    }
    CW_ASSIGN(const Json answer, client.ask("info", why));
    CW_ASSIGN(const VolumeReport report, decode_report(answer.get()));
    for (const MemberInfo& member : report.info.members)
        if (member.in_service())
            members.push_back(member);
    return members;
}

}  // namespace

int command_device_add(int argc, char** argv, CommandOptions common)
{
    DeviceArguments arguments{.common = std::move(common)};
    if (!parse_device(
            argc, argv, kAddOptions, "DEVICE... VOLUME",
            "Make each DEVICE a member of a mounted volume. New block groups use it at once; cowraid "
            "balance moves what is there over all members. VOLUME may be left out with one DEVICE, "
            "when one volume is mounted.",
            arguments))
        return kExitUsage;
    const std::vector<std::string> devices = take_operands(arguments.common);
    if (devices.empty())
        return nothing_named(arguments, "name the device, and the volume");
    std::string why;
    auto client = connect_mounted(arguments.common, why);
    if (!client.ok())
        return command_failed(arguments.common, client.err(), why);
    for (const std::string& path : devices) {
        const auto added = hand_over_device(*client, "device-add", nullptr, path, arguments.force, 0, why);
        if (!added.ok())
            return command_failed(arguments.common, added.err(), why);
        if (arguments.common.format == OutputFormat::kJson)
            print_json(added->get());
        else
            print_line(stdout, "%s is member %llu now", json_get_text(added->get(), "path").c_str(),
                       static_cast<unsigned long long>(json_get_integer(added->get(), "member")));
    }
    return kExitOk;
}

int command_device_remove(int argc, char** argv, CommandOptions common)
{
    DeviceArguments arguments{.common = std::move(common)};
    if (!parse_device(
            argc, argv, kRemoveOptions, "DEVICE|ID|missing VOLUME",
            "Move what is on a member of a mounted volume to the others, and remove it. cowraid "
            "balance status, pause, resume and cancel are for this, too. VOLUME may be left out when "
            "one volume is mounted.",
            arguments))
        return kExitUsage;
    const std::vector<std::string> members = take_operands(arguments.common);
    if (members.size() != 1)
        return nothing_named(arguments, "name one member (its device, its id, or missing), and the volume");
    std::string why;
    auto client = connect_mounted(arguments.common, why);
    if (!client.ok())
        return command_failed(arguments.common, client.err(), why);
    const auto member = find_member(*client, members.front(), why);
    if (!member.ok())
        return command_failed(arguments.common, member.err(), why);
    const Json request = json_make_object();
    json_put_text(request.get(), "action", "remove");
    json_put_integer(request.get(), "member", member->id.value);
    return run_balance(*client, arguments.common, request.get(),
                       arguments.background ? Wait::kNot : Wait::kForEnd);
}

int command_resize(int argc, char** argv, CommandOptions options)
{
    if (!parse_common(
            argc, argv, "[MEMBER:]max [VOLUME]",
            "Use all of a device that has grown, or of all that have. MEMBER is an id or a device. To "
            "use less of one, remove it and add it again.",
            options))
        return kExitUsage;
    const std::string what = options.operands.empty() ? "" : options.operands.front();
    const std::string name =
        what.substr(0, what.find_last_of(':') == std::string::npos ? 0 : what.find_last_of(':'));
    const bool to_max = what == "max" || (!name.empty() && what == name + ":max");
    if (!to_max || options.operands.size() > 2) {
        print_error(kProgram, options.format, Err::kInvalid,
                    "name max, or MEMBER:max, and the volume; members cannot be made smaller");
        return kExitUsage;
    }
    options.operands.erase(options.operands.begin());
    std::string why;
    auto client = connect_mounted(options, why);
    if (!client.ok())
        return command_failed(options, client.err(), why);
    const auto members = members_to_grow(*client, name, why);
    if (!members.ok())
        return command_failed(options, members.err(), why);
    bool any = false;
    for (const MemberInfo& member : *members) {
        const Json request = json_make_object();
        json_put_integer(request.get(), "member", member.id.value);
        const auto grown = client->call("member-grow", request.get(), why);
        if (!grown.ok() && (!name.empty() || grown.err() != Err::kInvalid))
            return command_failed(options, grown.err(), why);
        if (!grown.ok())
            continue;
        any = true;
        if (options.format == OutputFormat::kJson)
            print_json(grown->get());
        else
            print_line(stdout, "member %u (%s) uses %s now", member.id.value, member.path.c_str(),
                       size_text(json_get_integer(grown->get(), "size_bytes"), options.sizes).c_str());
    }
    return any ? kExitOk
               : command_failed(options, Err::kInvalid, why.empty() ? "no member is in service" : why);
}

}  // namespace cowraid
