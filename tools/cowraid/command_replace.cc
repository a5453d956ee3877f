// SPDX-License-Identifier: MIT
// cowraid replace start, replace status
#include <algorithm>

#include "base/print.h"
#include "control/json.h"
#include "device/open_member.h"
#include "fs/filesystem.h"
#include "tools/common/member_search.h"
#include "tools/common/new_member.h"
#include "tools/cowraid/command.h"
#include "tools/cowraid/load_report.h"
#include "tools/cowraid/mounted_command.h"

namespace cowraid {

namespace {

struct ReplaceArguments {
    CommandOptions common;
    bool force = false;
    bool wait = false;
    bool plan = false;
    bool nodiscard = false;
};

constexpr argp_option kReplaceOptions[] = {
    {"force", 'f', nullptr, 0, "overwrite a device that holds something, wiping its signature", 0},
    kNoDiscardOption,
    {"plan", kKeyPlanOnly, nullptr, 0, kPlanHelp, 0},
    {"wait", 'B', nullptr, 0, "until it has everything, where the volume is mounted", 0},
    {},
};

error_t parse_replace_option(int key, char*, argp_state* state)
{
    auto& arguments = *static_cast<ReplaceArguments*>(state->input);
    return parse_flags(key, state, arguments.common,
                       {{'f', &arguments.force},
                        {'B', &arguments.wait},
                        {'K', &arguments.nodiscard},
                        {kKeyPlanOnly, &arguments.plan}});
}

bool parse(int argc, char** argv, ReplaceArguments& arguments)
{
    return parse_command(
        argc, argv,
        {kReplaceOptions, parse_replace_option, "MEMBER|ID|missing DEVICE [VOLUME|MEMBER...]",
         "Put DEVICE in the place of a member of a volume, the only mounted one unless it is named. missing "
         "is the only member that is. DEVICE may be "
         "a spare of the volume, while that is mounted. A member that "
         "is in service serves until all that it has is copied, from the others where it is bad; an "
         "unmount "
         "or a crash only interrupts that. What one that is out of service held is written to DEVICE from "
         "the others while the volume is mounted, and the old device is given up at once: where it can still "
         "be read, cowraid device online first, so that it is copied. Of a volume that is not mounted the "
         "member is left out by naming all others.\vExit code 3: something is lost. It does not end a "
         "replacement: below a tree node that is lost the member's blocks are copied unverified, and cowraid "
         "status -v names what is lost. Block groups that can lose least come first."},
        &arguments);
}

struct Replaced {
    MemberId id;
    Uuid volume;
    std::string path;
    bool copied = false;  // from the member, which serves until then
    BalancePlan plan{};  // with --plan, and nothing is replaced
};

constexpr const char* kReplaceById = "cowraid replace start ID DEVICE VOLUME";

std::string member_text(MemberId id)
{
    return "member " + std::to_string(id.value);
}

// The member that is to be replaced, which is not there.
Result<MemberId> choose_member(const Assembly& assembly, const std::string& text, std::string& why)
{
    std::vector<MemberId> absent;
    for (const AssembledMember& member : assembly.members)
        if (member.device == nullptr)
            absent.push_back(member.id);
    if (text == "missing") {
        if (absent.size() == 1)
            return absent.front();
        return invalid(why, absent.empty()
                                ? "no member is missing; leave out the one to be replaced: name all others"
                                : several_missing(absent, kReplaceById));
    }
    const auto number = parse_size(text);
    const MemberId id{number.ok() && *number <= UINT32_MAX ? static_cast<uint32_t>(*number) : 0};
    if (assembly.superblock.member(id) == nullptr)
        return invalid(why, quoted(text) +
                                " is no member; give the id that cowraid filesystem show tells, or missing");
    if (std::find(absent.begin(), absent.end(), id) == absent.end())
        return invalid(why, member_text(id) + " is there; name all members but that to replace it");
    return id;
}

Status check_size(const NewMember& device, const MemberRecord& record, std::string& why)
{
    if (device.size_bytes >= record.size_bytes)
        return {};
    return invalid(why, device.path + " has " + size_text(device.size_bytes) + ", " + member_text(record.id) +
                            " had " + size_text(record.size_bytes) + "; use one that is not smaller");
}

// What the daemon says of a replacement, or of its plan; a spare it has already.
Result<Json> ask_daemon(ControlClient& client, const ReplaceArguments& arguments, json_t* request,
                        std::string& why)
{
    constexpr const char* kStart = "device-replace";
    constexpr const char* kAssess = "replace-plan";
    const std::string& device = arguments.common.operands[1];
    CW_ASSIGN(const SpareInfo spare, find_spare(client, device, why));
    if (spare.id.value != 0) {
        json_put_integer(request, "spare", spare.id.value);
        json_put_text(request, "path", spare.path);
        return client.call(arguments.plan ? kAssess : kStart, request, why);
    }
    Json answer;
    CW_ASSIGN(const NewMember chosen,
              choose_device(client, kAssess, request, device, arguments.force, answer, why));
    if (arguments.plan)
        return answer;
    return hand_over_device(client, kStart, request, chosen,
                            arguments.nodiscard ? OldContent::kKeep : OldContent::kDiscard, why);
}

// The same while it is mounted: its daemon writes what the member held, beside everything else.
Result<Replaced> replace_mounted(const ReplaceArguments& arguments, const VolumeTarget& target,
                                 std::string& why)
{
    CW_ASSIGN(ControlClient client, connect_target(target, why));
    CW_ASSIGN(const MemberInfo member, find_member(client, arguments.common.operands[0], why, kReplaceById));
    const Json request = json_make_object();
    json_put_integer(request.get(), "member", member.id.value);
    CW_ASSIGN(const Json answer, ask_daemon(client, arguments, request.get(), why));
    // One whose repairs did not hold comes back for it.
    Replaced replaced{member.id, target.uuid, json_get_text(request.get(), "path"),
                      member.in_service() || json_get_flag(answer.get(), "copied")};
    if (arguments.plan) {
        CW_ASSIGN(replaced.plan, decode_plan(answer.get()));
    }
    return replaced;
}

Result<Assembly> assemble_all(const VolumeMembers& volume, MemberAccess access,
                              std::vector<std::string>& warnings, std::string& why)
{
    CW_ASSIGN(auto devices, open_member_devices(volume, access, warnings, why));
    CW_ASSIGN(Assembly assembly, assemble(std::move(devices), why, lenient_assembly(volume)));
    warnings.insert(warnings.end(), assembly.notes.begin(), assembly.notes.end());
    return assembly;
}

// The step that a mounted volume names begins with an unmount.
std::string step_of_unmounted(const std::string& step)
{
    constexpr std::string_view kUnmount = "unmount it and ";
    return step.starts_with(kUnmount) ? step.substr(kUnmount.size()) : step;
}

Result<std::unique_ptr<Filesystem>> open_unmounted(Assembly assembly, bool read_only, std::string& why)
{
    MountOptions options;
    options.degraded = options.manual_commit = true;
    options.read_only = read_only;
    CW_ASSIGN(auto filesystem, Filesystem::open(std::move(assembly), options, why));
    const bool advised = filesystem->volume->read_only_advised();
    if (advised || (!read_only && filesystem->store.service.read_only())) {
        why = std::string("the volume cannot be written: ") + filesystem->store.service.reason();
        if (advised)
            why += "; " + step_of_unmounted(filesystem->volume->read_only_reason().step);
        return Err::kReadOnly;
    }
    return filesystem;
}

// To open it for writing records that members are not there: what may be refused is refused before.
Result<Replaced> replace_unmounted(const ReplaceArguments& arguments, const VolumeMembers& volume,
                                   std::string& why)
{
    const std::vector<std::string>& operands = arguments.common.operands;
    std::vector<std::string> warnings;
    CW_ASSIGN(Assembly assembly, assemble_all(volume, MemberAccess::kReadOnly, warnings, why));
    for (const std::string& warning : warnings)
        print_warning(kProgram, warning);
    CW_ASSIGN(const MemberId id, choose_member(assembly, operands[0], why));
    CW_ASSIGN(NewMember target, open_new_member(operands[1], arguments.force, why));
    CW_TRY(check_size(target, *assembly.superblock.member(id), why));
    Replaced replaced{id, volume.uuid, target.path};
    {
        CW_ASSIGN(const auto looked_at, open_unmounted(std::move(assembly), true, why));
        CW_TRY(looked_at->committer.plan_replacement(id, target.path, target.size_bytes, {}, replaced.plan,
                                                     why));
    }
    if (arguments.plan)
        return replaced;
    CW_ASSIGN(Assembly written, assemble_all(volume, MemberAccess::kReadWrite, warnings, why));
    CW_ASSIGN(const auto filesystem, open_unmounted(std::move(written), false, why));
    if (!arguments.nodiscard)
        discard_all(target);
    CW_TRY(wipe_old_signatures(target, why));
    CW_ASSIGN(auto device, make_device_from_fd(std::move(target.fd), target.path, {}, why));
    Status status = filesystem->committer.replace_member(id, std::move(device), why);
    if (const Status closed = filesystem->close(); status.ok())
        status = closed;
    if (!status.ok() && why.empty())
        why = "the volume could not be written: " + std::string(err_text(status.err())) +
              "; see cowraid filesystem show";
    return status.ok() ? Result<Replaced>(replaced) : Result<Replaced>(status.err());
}

Result<Replaced> replace(const ReplaceArguments& arguments, std::string& why)
{
    const std::vector<std::string>& operands = arguments.common.operands;
    const std::vector<std::string> volume_words(operands.begin() + 2, operands.end());
    if (volume_words.size() <= 1) {
        CW_ASSIGN(const VolumeTarget target, target_of(volume_words, why));
        if (target.mounted)
            return replace_mounted(arguments, target, why);
    }
    CW_ASSIGN(const VolumeMembers volume, find_unmounted(volume_words, Mounted::kRefused,
                                                         " first; the next mount fills the new member", why));
    return replace_unmounted(arguments, volume, why);
}

int print_replacing(const CommandOptions& options, const ReplaceStatus& status)
{
    if (options.format == OutputFormat::kJson)
        print_json(encode_replace(status).get());
    else
        print_lines(replace_text(status));
    if (status.state == ReplaceStatus::State::kFailed)
        return kExitFailed;
    return status.still_lossy() ? kExitFindings : kExitOk;
}

int wait_until_copied(const CommandOptions& options, const Replaced& replaced, uint64_t began)
{
    std::string why;
    auto client =
        connect_target({.uuid = replaced.volume, .mounted = true, .members = {}, .named_device = {}}, why);
    if (!client.ok())
        return command_failed(options, client.err(), why);
    const auto status = follow_work<ReplaceStatus>(*client, options, ask_replacing, replace_progress,
                                                   "copying goes on when it is mounted again", why);
    if (!status.ok())
        return command_failed(options, status.err(), why);
    if (status->active() && status->state != ReplaceStatus::State::kPaused)
        print_line(stderr, "cowraid: copying goes on; cowraid replace cancel ends it");
    const bool finished = status->state == ReplaceStatus::State::kFinished;
    // When the source failed on the way, the rest comes from the others.
    const int filled = finished && !is_filled(*client, replaced.id)
                           ? wait_until_filled(options, replaced.volume, replaced.id, began)
                           : kExitOk;
    if (filled == kExitFailed)
        return filled;
    const int code = print_replacing(options, *status);
    if (!finished)
        return kExitFailed;
    return filled == kExitOk ? code : filled;
}

// What is under way comes first, then what began last.
bool shows_filling(const ReplaceStatus& replacing, const ScrubStatus& filling)
{
    const bool fills = filling.state == ScrubState::kRunning || filling.state == ScrubState::kPaused;
    if (replacing.active() != fills)
        return fills;
    return replacing.state == ReplaceStatus::State::kNone || filling.started > replacing.started;
}

// How members are being filled, or how that ended.
int print_filling(const CommandOptions& options, const ScrubStatus& status)
{
    if (options.format == OutputFormat::kJson)
        print_json(encode_scrub(status).get());
    else
        print_lines(filling_text(status));
    return status.damaged() ? kExitFindings : kExitOk;
}

}  // namespace

int command_replace_start(int argc, char** argv, CommandOptions common)
{
    ReplaceArguments arguments{.common = std::move(common)};
    if (!parse(argc, argv, arguments))
        return kExitUsage;
    if (arguments.common.operands.size() < 2) {
        print_error(kProgram, arguments.common.format, Err::kInvalid,
                    "name the member (its id, or missing) and the new device");
        return kExitUsage;
    }
    std::string why;
    const uint64_t began = now_seconds();
    const auto replaced = replace(arguments, why);
    if (!replaced.ok())
        return command_failed(arguments.common, replaced.err(), why);
    if (arguments.plan)
        return print_plan(arguments.common, replaced->plan, "replacement");
    const bool waits = arguments.wait && find_mounted_volume(replaced->volume).has_value();
    const bool is_json = arguments.common.format == OutputFormat::kJson;
    if (!is_json)
        print_line(stdout,
                   replaced->copied
                       ? "%s takes the place of member %u when all is copied; see cowraid replace status"
                   : waits ? "%s is member %u now, and is being filled"
                           : "%s is member %u now; it is filled while the volume is mounted",
                   replaced->path.c_str(), replaced->id.value);
    if (replaced->copied && waits)
        return wait_until_copied(arguments.common, *replaced, began);
    const int code =
        waits ? wait_until_filled(arguments.common, replaced->volume, replaced->id, began) : kExitOk;
    if (!is_json && waits && code != kExitFailed)
        print_line(stdout, "member %u is filled: it has everything%s", replaced->id.value,
                   code == kExitOk ? "" : " but what is lost");
    if (is_json && (code != kExitFailed || interrupted())) {
        Json out = json_with_schema("replace");
        json_put_text(out.get(), "uuid", uuid_text(replaced->volume));
        json_put_integer(out.get(), "member", replaced->id.value);
        json_put_text(out.get(), "path", replaced->path);
        print_json(out.get());
    }
    return code;
}

int command_replace_status(int argc, char** argv, CommandOptions options)
{
    if (!parse_common(
            argc, argv, "[VOLUME]",
            "Show how far a member that is being replaced is copied, or how that ended; else how far "
            "members are filled that were put in the place of lost ones, or were away.\vExit code 3: "
            "something is lost.",
            options) ||
        !one_volume(options))
        return kExitUsage;
    std::string why;
    auto client = connect_mounted(options, why);
    if (!client.ok())
        return command_failed(options, client.err(), why);
    const auto replacing = ask_replacing(*client, why);
    if (!replacing.ok())
        return command_failed(options, replacing.err(), why);
    const auto filling = ask_filling(*client, why);
    if (!filling.ok())
        return command_failed(options, filling.err(), why);
    return shows_filling(*replacing, *filling) ? print_filling(options, *filling)
                                               : print_replacing(options, *replacing);
}

int command_replace_cancel(int argc, char** argv, CommandOptions options)
{
    if (!parse_common(
            argc, argv, "[VOLUME]",
            "Leave the member in its place that is being replaced. The new device is nobody's again.\v"
            "A device in the place of a lost member is a member from the beginning, and is filled as long as "
            "it is there: cowraid device offline takes it out of service, cowraid device remove for good.",
            options) ||
        !one_volume(options))
        return kExitUsage;
    std::string why;
    auto client = connect_mounted(options, why);
    if (!client.ok())
        return command_failed(options, client.err(), why);
    const auto answer = client->call("replace-cancel", nullptr, why);
    if (!answer.ok())
        return command_failed(options, answer.err(), why);
    const auto status = decode_replace(answer->get());
    return status.ok() ? print_replacing(options, *status) : command_failed(options, status.err(), why);
}

}  // namespace cowraid
