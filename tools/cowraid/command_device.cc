// SPDX-License-Identifier: MIT
// cowraid device add, device online, device offline, device remove
#include <algorithm>

#include "base/print.h"
#include "base/text.h"
#include "control/control_path.h"
#include "device/loop_backing.h"
#include "device/scan.h"
#include "device/signature.h"
#include "tools/common/member_search.h"
#include "tools/common/new_member.h"
#include "tools/common/returning_member.h"
#include "tools/cowraid/load_report.h"
#include "tools/cowraid/mounted_command.h"

namespace cowraid {

namespace {

struct DeviceArguments {
    CommandOptions common;
    bool force = false;
    bool background = false;
    bool wait = false;
    bool only_if_away = false;
    bool plan = false;
    bool spare = false;
    bool nodiscard = false;
};

constexpr int kKeyIfAway = 0x200;
constexpr int kKeySpare = 0x201;

constexpr argp_option kAddOptions[] = {
    {"force", 'f', nullptr, 0, "overwrite devices that hold something, wiping their signatures", 0},
    kNoDiscardOption,
    {"plan", kKeyPlanOnly, nullptr, 0, kPlanHelp, 0},
    {"spare", kKeySpare, nullptr, 0, "hold it in reserve: it takes the place of a member that fails", 0},
    {},
};
constexpr argp_option kOnlineOptions[] = {
    {"wait", 'B', nullptr, 0, "until all that it missed is written to it", 0},
    {"if-away", kKeyIfAway, nullptr, 0,
     "for udev: nothing is done, and nothing said, unless the one operand is a device whose member is away "
     "from a mounted volume",
     0},
    {},
};
constexpr argp_option kRemoveOptions[] = {
    {"background", kKeyBackground, nullptr, 0, "do not wait for its end", 0},
    {"bg", kKeyBackground, nullptr, OPTION_ALIAS, nullptr, 0},
    {"plan", kKeyPlanOnly, nullptr, 0, kPlanHelp, 0},
    {},
};

error_t parse_device_option(int key, char*, argp_state* state)
{
    auto& arguments = *static_cast<DeviceArguments*>(state->input);
    return parse_flags(key, state, arguments.common,
                       {{'f', &arguments.force},
                        {'B', &arguments.wait},
                        {'K', &arguments.nodiscard},
                        {kKeyIfAway, &arguments.only_if_away},
                        {kKeySpare, &arguments.spare},
                        {kKeyBackground, &arguments.background},
                        {kKeyPlanOnly, &arguments.plan}});
}

// `options`: null for none; argp leaks memory where the list is empty.
bool parse_device(int argc, char** argv, const argp_option* options, const char* operands, const char* doc,
                  DeviceArguments& arguments)
{
    return parse_command(argc, argv, {options, parse_device_option, operands, doc}, &arguments);
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

// What a new spare cannot do: take the place of larger members, or of any where one that fails stops writing.
std::string limits_text(const json_t* added)
{
    if (json_get_flag(added, "spare") && json_get_integer(added, "may_fail_writing") == 0)
        return "; writing stops with the next member that fails, so it only takes the place of one with "
               "errors";
    const json_t* const ids = json_get(added, "too_small_for");
    std::vector<std::string> words;
    for (size_t i = 0; i < json_array_size(ids); ++i)
        words.push_back(std::to_string(json_integer_value(json_array_get(ids, i))));
    if (words.empty())
        return "";
    return "; it is too small to take the place of member " + join_words(words);
}

int remove_spare(ControlClient& client, const CommandOptions& options, const SpareInfo& spare)
{
    std::string why;
    const Json request = json_make_object();
    json_put_integer(request.get(), "member", spare.id.value);
    json_put_text(request.get(), "path", spare.path);
    const auto removed = client.call("spare-remove", request.get(), why);
    if (!removed.ok())
        return command_failed(options, removed.err(), why);
    if (options.format == OutputFormat::kJson)
        print_json(removed->get());
    else
        print_line(stdout, "spare %u is removed", spare.id.value);
    return kExitOk;
}

// Of a change that moves nothing, and leaves the tolerance as it is.
int plan_nothing(ControlClient& client, const CommandOptions& options)
{
    std::string why;
    const auto answer = client.ask("info", why);
    const auto report = answer.ok() ? decode_report(answer->get()) : Result<VolumeReport>(answer.err());
    if (!report.ok())
        return command_failed(options, report.err(), why);
    const auto left = static_cast<uint32_t>(report->info.may_fail);
    return print_plan(
        options, {.tolerance_before = left, .tolerance_meanwhile = left, .tolerance_after = left}, "balance");
}

int nothing_named(const DeviceArguments& arguments, const char* what)
{
    print_error(kProgram, arguments.common.format, Err::kInvalid, what);
    return kExitUsage;
}

// The device that has the member's superblocks now; empty: none is found. Of several it is the one that the
// newest superblock found knows as that member: the daemon examines it anyway.
Result<std::string> search_member(const Uuid& volume, MemberId id, std::string& why)
{
    std::string ignored;
    const auto scanned = scan_for("UUID=" + uuid_text(volume), {}, ignored);
    if (!scanned.ok())
        return std::string();
    const Superblock* newest = nullptr;
    std::vector<const FoundMember*> found;
    for (const FoundMember& one : scanned->members) {
        if (newest == nullptr || one.superblock.generation > newest->generation)
            newest = &one.superblock;
        if (!one.superblock.on_spare() && one.superblock.member_id == id)
            found.push_back(&one);
    }
    const MemberRecord* const line = newest == nullptr ? nullptr : newest->member(id);
    if (found.size() > 1 && line != nullptr)
        std::erase_if(found,
                      [&](const FoundMember* one) { return one->superblock.member(id)->uuid != line->uuid; });
    if (found.size() > 1) {
        why = found[0]->path + " and " + found[1]->path + " both are member " + std::to_string(id.value) +
              "; name the one that is meant";
        return Err::kInvalid;
    }
    return found.empty() ? std::string() : found.front()->path;
}

Result<Json> bring_online(ControlClient& client, const Uuid& volume, const std::string& name,
                          std::string& why)
{
    std::string path = name, ignored;
    const bool is_path = identify_member(name).ok();
    Result<MemberInfo> member = find_member(client, name, why, "cowraid device online ID VOLUME");
    if (!member.ok() && (!is_path || member.err() != Err::kInvalid))
        return member.err();
    if (member.ok() && member->in_service()) {
        why = "member " + std::to_string(member->id.value) + " (" + member->path + ") is in service";
        return Err::kInvalid;
    }
    if (const auto spare = find_spare(client, name, ignored); is_path && spare.ok() && spare->id.value != 0) {
        why = "spare " + std::to_string(spare->id.value) + " (" + spare->path + ") is there" +
              (spare->useless ? ", and faulted: cowraid device remove does without it" : "");
        return Err::kInvalid;
    }
    if (!is_path) {
        CW_ASSIGN(path, search_member(volume, member->id, why));
    }
    const Json request = json_make_object();
    UniqueFd fd;
    if (!path.empty()) {
        auto opened = open_returning(path, why);
        if (opened.ok()) {
            fd = opened.take();
        } else {
            if (opened.err() != Err::kBusy)
                return opened.err();
            // The daemon has it still, since it failed; if not, somebody else has.
            std::string silent;
            const auto holder = find_member(client, path, silent);
            if (!holder.ok() && holder.err() != Err::kInvalid)
                why = silent;
            if (!holder.ok())
                return holder.err() == Err::kInvalid ? Err::kBusy : holder.err();
        }
    }
    if (member.ok())
        json_put_integer(request.get(), "member", member->id.value);
    json_put_text(request.get(), "path", path.empty() && member.ok() ? member->path : absolute_path(path));
    why.clear();
    return client.call("device-online", request.get(), why, fd.get());
}

// Whether the device's volume is mounted without it, a member or a spare.
bool is_member_away(const std::string& path)
{
    std::string ignored;
    if (control_sockets().empty())
        return false;
    const auto found = inspect_member(path, ignored);
    if (!found.ok())
        return false;
    auto client = connect_target(
        {.uuid = found->superblock.volume_uuid, .mounted = true, .members = {}, .named_device = {}}, ignored);
    return client.ok() && is_away(*client, found->superblock);
}

}  // namespace

int command_device_online(int argc, char** argv, CommandOptions common)
{
    DeviceArguments arguments{.common = std::move(common)};
    if (!parse_device(
            argc, argv, kOnlineOptions, "DEVICE|ID|missing VOLUME",
            "Bring a member of a mounted volume back that was away, or failed and is mended. What was "
            "written without it is written to it. VOLUME may be left out when one volume is "
            "mounted.\vExit code 3, with -B: something is lost.",
            arguments))
        return kExitUsage;
    const std::vector<std::string> members = take_operands(arguments.common);
    if (members.size() != 1)
        return nothing_named(arguments, "name one member (its device, its id, or missing), and the volume");
    if (arguments.only_if_away) {
        if (!arguments.common.operands.empty())
            return nothing_named(arguments, "with --if-away name only the device");
        if (!is_member_away(members.front()))
            return kExitOk;
        if (is_loop_of_another(members.front()))
            return command_failed(arguments.common, Err::kNotPermitted,
                                  "the file behind " + members.front() +
                                      " is another user's; cowraid device online " + members.front() +
                                      " brings it back all the same");
        arguments.common.operands = members;
    }
    std::string why;
    auto client = connect_mounted(arguments.common, why);
    if (!client.ok())
        return command_failed(arguments.common, client.err(), why);
    const auto mounted = client->mounted_volume();
    if (!mounted.ok())
        return command_failed(arguments.common, mounted.err(), "the volume is not mounted any more");
    const uint64_t began = now_seconds();
    const auto back = bring_online(*client, mounted->uuid, members.front(), why);
    if (!back.ok())
        return command_failed(arguments.common, back.err(), why);
    const MemberId id{static_cast<uint32_t>(json_get_integer(back->get(), "member"))};
    const bool spare = json_get_flag(back->get(), "spare");
    const bool is_json = arguments.common.format == OutputFormat::kJson;
    if (!is_json)
        print_line(stdout,
                   spare ? "%s is spare %u again" : "%s is member %u again; what it missed is written to it",
                   json_get_text(back->get(), "path").c_str(), id.value);
    const int code =
        arguments.wait && !spare ? wait_until_filled(arguments.common, mounted->uuid, id, began) : kExitOk;
    if (is_json && (code != kExitFailed || interrupted()))
        print_json(back->get());
    return code;
}

int command_device_offline(int argc, char** argv, CommandOptions common)
{
    DeviceArguments arguments{.common = std::move(common)};
    if (!parse_device(
            argc, argv, nullptr, "DEVICE|ID VOLUME",
            "Take a member of a mounted volume out of service, if the volume can do without it. It is "
            "back with cowraid device online, or at the next mount. VOLUME may be left out when one "
            "volume is mounted.",
            arguments))
        return kExitUsage;
    const std::vector<std::string> members = take_operands(arguments.common);
    if (members.size() != 1)
        return nothing_named(arguments, "name one member (its device or its id), and the volume");
    std::string why;
    auto client = connect_mounted(arguments.common, why);
    if (!client.ok())
        return command_failed(arguments.common, client.err(), why);
    const auto member = find_member(*client, members.front(), why);
    if (!member.ok())
        return command_failed(arguments.common, member.err(), why);
    const Json request = json_make_object();
    json_put_integer(request.get(), "member", member->id.value);
    json_put_text(request.get(), "path", member->path);
    const auto done = client->call("device-offline", request.get(), why);
    if (!done.ok())
        return command_failed(arguments.common, done.err(), why);
    if (arguments.common.format == OutputFormat::kJson)
        print_json(done->get());
    else
        print_line(stdout, "member %u (%s) is out of service; cowraid device online %u brings it back",
                   member->id.value, member->path.c_str(), member->id.value);
    return kExitOk;
}

namespace {

// Opens all devices and asks the daemon whether it takes them, one after the other. Changes nothing.
// `answer`: what it says of all.
Result<std::vector<NewMember>> check_devices(ControlClient& client, const DeviceArguments& arguments,
                                             const std::vector<std::string>& paths, Json& answer,
                                             std::string& why)
{
    CW_TRY(check_named_once(paths, why));
    std::vector<NewMember> devices;
    for (const std::string& path : paths) {
        const Json request = json_make_object();
        json_put_flag(request.get(), "spare", arguments.spare);
        json_put_integer(request.get(), "others", devices.size());
        Json sizes = json_make_array();
        for (const NewMember& device : devices)
            json_array_append_new(sizes.get(), json_integer(static_cast<json_int_t>(device.size_bytes)));
        json_put(request.get(), "other_sizes", std::move(sizes));
        CW_ASSIGN(NewMember device,
                  choose_device(client, "device-add", request.get(), path, arguments.force, answer, why));
        devices.push_back(std::move(device));
    }
    return devices;
}

// How much room for data comes with all devices, which the last of the results gets, too.
void tell_room(const CommandOptions& options, const json_t* answer, json_t* last)
{
    const json_t* const bytes = json_get(answer, "data_bytes");
    if (bytes == nullptr)
        return;  // spares, or a daemon of before
    const uint64_t more = json_get_integer(answer, "data_bytes");
    json_put_integer(last, "data_bytes", more);
    if (options.format == OutputFormat::kJson)
        return;
    if (more > 0)
        print_line(stdout, "room for data: %s more", size_text(more, options.sizes).c_str());
    else
        print_line(stdout,
                   "room for data: no more; block groups of %s need free slots on %llu members: add another "
                   "device, or remove files",
                   json_get_text(answer, "data_profile").c_str(),
                   static_cast<unsigned long long>(json_get_integer(answer, "members_needed")));
}

Result<Json> add_device(ControlClient& client, const DeviceArguments& arguments, const NewMember& device,
                        std::string& why)
{
    const Json request = json_make_object();
    json_put_flag(request.get(), "spare", arguments.spare);
    CW_ASSIGN(Json added,
              hand_over_device(client, "device-add", request.get(), device,
                               arguments.nodiscard ? OldContent::kKeep : OldContent::kDiscard, why));
    if (arguments.common.format == OutputFormat::kText)
        print_line(stdout, "%s is %s %llu now%s", device.path.c_str(), arguments.spare ? "spare" : "member",
                   static_cast<unsigned long long>(json_get_integer(added.get(), "member")),
                   limits_text(added.get()).c_str());
    return added;
}

}  // namespace

int command_device_add(int argc, char** argv, CommandOptions common)
{
    DeviceArguments arguments{.common = std::move(common)};
    if (!parse_device(
            argc, argv, kAddOptions, "DEVICE... VOLUME",
            "Make each DEVICE a member of a mounted volume. New block groups use it at once; cowraid "
            "balance moves what is there over all members. With --spare it is held in reserve, and takes the "
            "place of a member that fails. VOLUME may be left out with one DEVICE, "
            "when one volume is mounted.\vA block group of raid5 needs free slots on 2 members, one of raid6 "
            "on 3: on a full volume it may take as many devices until there is more room for data, which the "
            "command says, and with --plan beforehand.",
            arguments))
        return kExitUsage;
    const std::vector<std::string> paths = take_operands(arguments.common);
    if (paths.empty())
        return nothing_named(arguments, "name the device, and the volume");
    std::string why;
    auto client = connect_mounted(arguments.common, why);
    if (!client.ok())
        return command_failed(arguments.common, client.err(), why);
    if (arguments.plan && arguments.spare)
        return nothing_named(arguments, "a spare holds nothing: there is no plan for it");
    Json assessed;
    const auto devices = check_devices(*client, arguments, paths, assessed, why);
    if (!devices.ok())
        return command_failed(arguments.common, devices.err(), why);
    std::vector<Json> results;
    for (const NewMember& device : *devices) {
        Result<Json> added = arguments.plan ? growth_of(arguments.common, device.path, device.size_bytes)
                                            : add_device(*client, arguments, device, why);
        if (!added.ok())
            return command_failed(arguments.common, added.err(),
                                  why + (results.empty() ? "" : "; those before it are added"));
        results.push_back(added.take());
    }
    tell_room(arguments.common, assessed.get(), results.back().get());
    if (arguments.common.format == OutputFormat::kJson)
        print_results(results);
    return kExitOk;
}

int command_device_remove(int argc, char** argv, CommandOptions common)
{
    DeviceArguments arguments{.common = std::move(common)};
    if (!parse_device(
            argc, argv, kRemoveOptions, "DEVICE|ID|missing VOLUME",
            "Move what is on a member of a mounted volume to the others, and remove it; a spare is removed "
            "at once. cowraid "
            "balance status, pause, resume and cancel are for this, too. VOLUME may be left out when "
            "one volume is mounted.\vExit code 3: something cannot be read, and the member stays.",
            arguments))
        return kExitUsage;
    const std::vector<std::string> members = take_operands(arguments.common);
    if (members.size() != 1)
        return nothing_named(arguments, "name one member (its device, its id, or missing), and the volume");
    std::string why;
    auto client = connect_mounted(arguments.common, why);
    if (!client.ok())
        return command_failed(arguments.common, client.err(), why);
    const auto spare = find_spare(*client, members.front(), why);
    if (!spare.ok())
        return command_failed(arguments.common, spare.err(), why);
    if (spare->id.value != 0 && arguments.plan)
        return plan_nothing(*client, arguments.common);
    if (spare->id.value != 0)
        return remove_spare(*client, arguments.common, *spare);
    why.clear();
    const auto member = find_member(*client, members.front(), why, "cowraid device remove ID VOLUME");
    if (!member.ok())
        return command_failed(arguments.common, member.err(), why);
    const Json request = json_make_object();
    json_put_text(request.get(), "action", "remove");
    json_put_integer(request.get(), "member", member->id.value);
    return run_balance(*client, arguments.common, request.get(),
                       arguments.plan         ? Wait::kPlan
                       : arguments.background ? Wait::kNot
                                              : Wait::kForEnd);
}

}  // namespace cowraid
