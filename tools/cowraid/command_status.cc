// SPDX-License-Identifier: MIT
// cowraid status
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "base/print.h"
#include "control/damage_json.h"
#include "tools/cowraid/load_report.h"
#include "tools/cowraid/mounted_command.h"

namespace cowraid {

namespace {

constexpr int kKeyWatch = 259;

struct StatusArguments {
    CommandOptions common;
    bool only_problems = false;
    bool names_files = false;
    unsigned watch_seconds = 0;  // 0: once
};

constexpr argp_option kStatusOptions[] = {
    {nullptr, 'x', nullptr, 0, "only volumes that are not as they should be", 0},
    {nullptr, 'v', nullptr, 0, "name damaged files", 0},
    {"watch", kKeyWatch, "SECONDS", OPTION_ARG_OPTIONAL, "again every second, or so many, until interrupted",
     0},
    {},
};

error_t parse_status_option(int key, char* text, argp_state* state)
{
    auto& arguments = *static_cast<StatusArguments*>(state->input);
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &arguments.common;
        return 0;
    case 'x':
        arguments.only_problems = true;
        return 0;
    case 'v':
        arguments.names_files = true;
        return 0;
    case kKeyWatch:
        arguments.watch_seconds = text == nullptr ? 1 : static_cast<unsigned>(strtoul(text, nullptr, 10));
        if (arguments.watch_seconds == 0)
            argp_error(state, "--watch takes a number of seconds, not %s", quoted(text).c_str());
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

bool parse_status(int argc, char** argv, StatusArguments& arguments)
{
    static const argp_child children[] = {{&kCommonParser, 0, nullptr, 0}, {}};
    static const argp parser = {.options = kStatusOptions,
                                .parser = parse_status_option,
                                .args_doc = "[VOLUME...]",
                                .doc =
                                    "Show how mounted volumes are, what to do about them, and what goes on.",
                                .children = children,
                                .help_filter = nullptr,
                                .argp_domain = nullptr};
    return argp_parse(&parser, argc, argv, 0, nullptr, &arguments) == 0;
}

struct VolumeStatus {
    VolumeReport report;
    ScrubStatus scrub, catch_up;
    BalanceStatus balance;
    std::optional<DamagedFiles> damage;  // when it was asked for
};

struct Health {
    const char* state;
    std::string what;  // is not as it should be; empty: nothing
    std::string action;
};

uint64_t errors_of(const MemberInfo& member)
{
    uint64_t errors = 0;
    for (size_t counter = 0; counter < static_cast<size_t>(MemberCounter::kRepaired); ++counter)
        errors += member.counters[counter];
    return errors;
}

uint64_t count_members(const VolumeInfo& info, bool (*which)(const MemberInfo&))
{
    return static_cast<uint64_t>(std::count_if(info.members.begin(), info.members.end(), which));
}

// The worst first.
Health health_of(const VolumeStatus& status)
{
    const VolumeInfo& info = status.report.info;
    const uint64_t missing = count_members(info, [](const MemberInfo& one) { return !one.in_service(); });
    const uint64_t stale = count_members(info, [](const MemberInfo& one) { return one.stale_groups > 0; });
    const uint64_t nodes = status.scrub.unreadable_nodes + status.catch_up.unreadable_nodes;
    if (info.read_only && !info.read_only_reason.empty())
        return {"READ-ONLY", info.read_only_reason, "unmount it, look at the members, mount it again"};
    if (nodes > 0)
        return {"DAMAGED", count_text(nodes, "tree node") + " cannot be had from any redundancy",
                "unmount it and run cowraid check, which says what is lost; restore it from elsewhere"};
    if (info.damaged_blocks > 0)
        return {
            "DAMAGED", count_text(info.damaged_blocks, "block") + " cannot be had from any redundancy",
            "cowraid status -v names the files: restore them from elsewhere, or delete them; a scrub says "
            "when nothing is damaged any more"};
    if (missing > 0)
        return {
            "DEGRADED", count_text(missing, "member") + " out of service",
            "cowraid replace start ID DEVICE puts a new device in the place of one; cowraid device remove ID "
            "does without it; one that was only unplugged takes part again at the next mount"};
    if (stale > 0)
        return {"DEGRADED", count_text(stale, "member") + " without writes that it missed",
                status.catch_up.state == ScrubState::kRunning
                    ? "wait: they are being written to it"
                    : "mount it again, for writing: they are written to it then; see the system log"};
    if (count_members(info, [](const MemberInfo& one) { return errors_of(one) > 0; }) > 0)
        return {"ONLINE", "errors were met and repaired",
                "look at the members that have them; cowraid device stats -z sets the counters to 0"};
    return {info.read_only ? "ONLINE, read-only" : "ONLINE", "", ""};
}

const char* state_of(const MemberInfo& member)
{
    if (member.path.empty() && !member.unusable)
        return "missing";
    if (member.unusable)
        return "unusable";
    if (!member.in_service())
        return member.state == MemberState::kFailed ? "failed" : "missing";
    return member.stale_groups > 0 ? "filling" : "online";
}

std::string note_of(const MemberInfo& member, SizeStyle sizes)
{
    if (!member.reason.empty() && member.reason != "is absent")
        return member.reason;
    return member.stale_groups == 0 ? ""
                                    : "lacks writes to " + count_text(member.stale_groups, "block group") +
                                          ", " + size_text(member.stale_bytes, sizes);
}

uint64_t counter_of(const MemberInfo& member, MemberCounter counter)
{
    return member.counters[static_cast<size_t>(counter)];
}

void print_members(const VolumeInfo& info, SizeStyle sizes)
{
    size_t width = 6;
    for (const MemberInfo& member : info.members)
        width = std::max(width, member.path.size());
    print_line(stdout, "  %4s  %-*s  %-8s %6s %6s %6s", "ID", static_cast<int>(width), "DEVICE", "STATE",
               "READ", "WRITE", "CKSUM");
    for (const MemberInfo& member : info.members) {
        const uint64_t wrong =
            counter_of(member, MemberCounter::kCorruption) + counter_of(member, MemberCounter::kGeneration) +
            counter_of(member, MemberCounter::kParity) + counter_of(member, MemberCounter::kSuperblock);
        const uint64_t writes =
            counter_of(member, MemberCounter::kWriteErrors) + counter_of(member, MemberCounter::kFlushErrors);
        const std::string note = note_of(member, sizes);
        print_line(stdout, "  %4u  %-*s  %-8s %6llu %6llu %6llu%s%s", member.id.value,
                   static_cast<int>(width), member.path.empty() ? "-" : member.path.c_str(), state_of(member),
                   static_cast<unsigned long long>(counter_of(member, MemberCounter::kReadErrors)),
                   static_cast<unsigned long long>(writes), static_cast<unsigned long long>(wrong),
                   note.empty() ? "" : "  ", note.c_str());
    }
}

std::string may_fail_text(const VolumeInfo& info)
{
    if (info.may_fail == 0)
        return "no member";
    const std::string text = "any " + count_text(info.may_fail, "member");
    if (info.read_only || info.may_fail_writing == info.may_fail)
        return text;
    return text + (info.may_fail_writing == 0
                       ? ", but then nothing can be written"
                       : "; writing goes on without " + count_text(info.may_fail_writing, "member"));
}

void print_damage(const DamagedFiles& damage)
{
    print_line(stdout, "Damaged files:");
    for (const DamagedFile& file : damage.files)
        for (const std::string& path : file.paths)
            print_line(stdout, "  %s: %s, bytes %llu to %llu", quoted(path).c_str(),
                       count_text(file.blocks, "block").c_str(),
                       static_cast<unsigned long long>(file.range.first),
                       static_cast<unsigned long long>(file.range.last));
    if (damage.file_count > damage.files.size())
        print_line(stdout, "  and %llu more",
                   static_cast<unsigned long long>(damage.file_count - damage.files.size()));
    if (damage.file_count == 0)
        print_line(stdout, "  none: what is damaged belongs to files that are deleted or changed by now");
    print_empty_line(stdout);
}

void print_status(const VolumeStatus& status, SizeStyle sizes)
{
    const VolumeInfo& info = status.report.info;
    const Health health = health_of(status);
    print_field("Volume:", (info.label.empty() ? "" : quoted(info.label) + "  ") + uuid_text(info.uuid));
    print_field("Mounted:", status.report.mount_point);
    print_field("State:", health.state);
    if (!health.what.empty())
        print_field("Status:", health.what);
    if (!health.action.empty())
        print_field("Action:", health.action);
    print_field("Profiles:", std::string(profile_name(info.data_profile)) + " for data, " +
                                 profile_name(info.metadata_profile) + " for metadata");
    print_field("May still fail:", may_fail_text(info));
    print_field("Scrub:", scrub_summary(status.scrub));
    if (status.catch_up.state == ScrubState::kRunning || status.catch_up.state == ScrubState::kPaused)
        print_field("Filling members:", scrub_summary(status.catch_up));
    if (status.balance.state != BalanceStatus::State::kNone)
        print_field("Balance:", balance_summary(status.balance));
    print_empty_line(stdout);
    print_members(info, sizes);
    print_empty_line(stdout);
    if (status.damage && info.damaged_blocks > 0)
        print_damage(*status.damage);
}

Result<VolumeStatus> ask_status(const Uuid& uuid, bool names_files, Json& answer, std::string& why)
{
    CW_ASSIGN(ControlClient client,
              connect_target({.uuid = uuid, .mounted = true, .members = {}, .named_device = {}}, why));
    CW_ASSIGN(answer, client.ask("status", why));
    why = "the daemon answers in another format; is it of another version?";
    VolumeStatus status;
    CW_ASSIGN(status.report, decode_report(answer.get()));
    CW_ASSIGN(status.scrub, decode_scrub(json_get(answer.get(), "scrub")));
    CW_ASSIGN(status.catch_up, decode_scrub(json_get(answer.get(), "catch_up")));
    CW_ASSIGN(status.balance, decode_balance(json_get(answer.get(), "balance")));
    const Health health = health_of(status);
    json_put_text(answer.get(), "health", health.state);
    json_put_text(answer.get(), "problem", health.what);
    if (names_files) {
        CW_ASSIGN(Json damage, client.call("damage", nullptr, why));
        CW_ASSIGN(status.damage, decode_damage(damage.get()));
        json_put(answer.get(), "damage", std::move(damage));
    }
    why.clear();
    return status;
}

// Those that were named, or all that are mounted.
Result<std::vector<Uuid>> chosen_volumes(const CommandOptions& options, std::string& why)
{
    std::vector<Uuid> volumes;
    for (const std::string& operand : options.operands) {
        CW_ASSIGN(const VolumeTarget target, find_target({operand}, why));
        CW_TRY(connect_target(target, why).status());
        volumes.push_back(target.uuid);
    }
    if (options.operands.empty())
        for (const MountedVolume& mounted : list_mounted_volumes())
            volumes.push_back(mounted.uuid);
    return volumes;
}

int show_once(const StatusArguments& arguments)
{
    const CommandOptions& options = arguments.common;
    std::string why;
    const auto volumes = chosen_volumes(options, why);
    if (!volumes.ok())
        return command_failed(options, volumes.err(), why);
    int code = kExitOk;
    size_t shown = 0;
    Json list = json_make_array();
    for (const Uuid& uuid : *volumes) {
        Json answer;
        const auto status = ask_status(uuid, arguments.names_files, answer, why);
        if (!status.ok()) {
            code = command_failed(options, status.err(), "volume " + uuid_text(uuid) + ": " + why);
            continue;
        }
        if (arguments.only_problems && health_of(*status).what.empty())
            continue;
        ++shown;
        if (options.format == OutputFormat::kJson)
            json_array_append_new(list.get(), answer.release());
        else
            print_status(*status, options.sizes);
    }
    if (options.format == OutputFormat::kJson) {
        Json out = json_with_schema("status");
        json_put(out.get(), "volumes", std::move(list));
        print_json(out.get());
    } else if (shown == 0 && code == kExitOk) {
        print_line(stdout, "%s",
                   volumes->empty() ? "no volume is mounted; cowraid filesystem show looks for them"
                                    : "all volumes are healthy");
    }
    return code;
}

}  // namespace

int command_status(int argc, char** argv, CommandOptions common)
{
    StatusArguments arguments{.common = std::move(common)};
    if (!parse_status(argc, argv, arguments))
        return kExitUsage;
    if (arguments.watch_seconds == 0)
        return show_once(arguments);
    notice_interrupts();
    int code = kExitOk;
    while (!interrupted()) {
        if (isatty(STDOUT_FILENO) == 1)
            print_line(stdout, "\033[H\033[2J");
        code = show_once(arguments);
        sleep(arguments.watch_seconds);
    }
    return code;
}

}  // namespace cowraid
