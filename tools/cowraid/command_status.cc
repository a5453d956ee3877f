// SPDX-License-Identifier: MIT
// cowraid status
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/print.h"
#include "control/mount_table.h"
#include "tools/cowraid/load_report.h"
#include "tools/cowraid/mounted_command.h"
#include "tools/mount/effective_options.h"

namespace cowraid {

namespace {

constexpr int kKeyWatch = 259, kKeyCheck = 260;

struct StatusArguments {
    CommandOptions common;
    bool only_problems = false;
    bool names_files = false;
    bool check = false;  // the exit code says how they are
    unsigned watch_seconds = 0;  // 0: once
};

constexpr argp_option kStatusOptions[] = {
    {nullptr, 'x', nullptr, 0, "only volumes that are not as they should be", 0},
    {nullptr, 'v', nullptr, 0, "name damaged files", 0},
    {"check", kKeyCheck, nullptr, 0, "say by the exit code how they are", 0},
    {"watch", kKeyWatch, "SECONDS", OPTION_ARG_OPTIONAL, "again every second, or so many, until interrupted",
     0},
    {},
};

error_t parse_status_option(int key, char* text, argp_state* state)
{
    auto& arguments = *static_cast<StatusArguments*>(state->input);
    switch (key) {
    case kKeyWatch:
        arguments.watch_seconds = text == nullptr ? 1 : static_cast<unsigned>(strtoul(text, nullptr, 10));
        if (arguments.watch_seconds == 0)
            argp_error(state, "--watch takes a number of seconds, not %s", quoted(text).c_str());
        return 0;
    default:
        return parse_flags(
            key, state, arguments.common,
            {{'x', &arguments.only_problems}, {'v', &arguments.names_files}, {kKeyCheck, &arguments.check}});
    }
}

bool parse_status(int argc, char** argv, StatusArguments& arguments)
{
    return parse_command(
        argc, argv,
        {kStatusOptions, parse_status_option, "[VOLUME...]",
         "Show how mounted volumes are, what to do about them, and what goes on.\vExit codes "
         "with --check: 0 all are healthy; 1 something is not as it should be, and nothing "
         "is lost; 2 data is lost, or nothing can be written; 4 that cannot be told: a "
         "daemon does not answer, no volume is mounted, or the command line is wrong. Of "
         "several volumes the highest counts."},
        &arguments);
}

std::string note_of(const MemberInfo& member, SizeStyle sizes)
{
    if (!member.reason.empty() && member.reason != "is absent")
        return member.reason;
    if (member.slow_ms > 0)
        return "is slow: " + slow_text(member);
    if (member.doubtful && member.stale_groups == 0)
        return "many errors within ten minutes";
    return member.stale_groups == 0 ? ""
                                    : "lacks writes to " + count_text(member.stale_groups, "block group") +
                                          ", " + size_text(member.stale_bytes, sizes);
}

uint64_t counter_of(const MemberInfo& member, MemberCounter counter)
{
    return member.counters[static_cast<size_t>(counter)];
}

void print_members(const VolumeStatus& status, SizeStyle sizes)
{
    const VolumeInfo& info = status.report.info;
    size_t width = 6;
    for (const MemberInfo& member : info.members)
        width = std::max(width, member.path.size());
    for (const SpareInfo& spare : info.spares)
        width = std::max(width, spare.path.size());
    print_line(stdout, "  %4s  %-*s  %-10s %6s %6s %6s", "ID", static_cast<int>(width), "DEVICE", "STATE",
               "READ", "WRITE", "CKSUM");
    for (const MemberInfo& member : info.members) {
        const uint64_t wrong =
            counter_of(member, MemberCounter::kCorruption) + counter_of(member, MemberCounter::kGeneration) +
            counter_of(member, MemberCounter::kParity) + counter_of(member, MemberCounter::kSuperblock);
        const uint64_t writes =
            counter_of(member, MemberCounter::kWriteErrors) + counter_of(member, MemberCounter::kFlushErrors);
        const std::string note = note_of(member, sizes);
        print_line(stdout, "  %4u  %-*s  %-10s %6llu %6llu %6llu%s%s", member.id.value,
                   static_cast<int>(width), member.path.empty() ? "-" : member.path.c_str(),
                   state_of(member, status),
                   static_cast<unsigned long long>(counter_of(member, MemberCounter::kReadErrors)),
                   static_cast<unsigned long long>(writes), static_cast<unsigned long long>(wrong),
                   note.empty() ? "" : "  ", note.c_str());
    }
    for (const SpareInfo& spare : info.spares)
        print_line(stdout, "  %4u  %-*s  %s, %s", spare.id.value, static_cast<int>(width),
                   spare.path.empty() ? "-" : spare.path.c_str(), state_of(spare),
                   size_text(spare.size_bytes, sizes).c_str());
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

// Those that nobody has to ask for are left out, but for the first two.
std::string options_shown(const std::string& options)
{
    const std::string usual = mount_options_text({});
    const std::vector<std::string_view> left_out = split(usual, ',');
    constexpr size_t kAlways = 2;  // rw, relatime
    std::string out;
    for (const std::string_view option : split(options, ','))
        if (std::find(left_out.begin() + kAlways, left_out.end(), option) == left_out.end())
            out += (out.empty() ? "" : ",") + std::string(option);
    return out;
}

void print_status(const VolumeStatus& status, SizeStyle sizes)
{
    const VolumeInfo& info = status.report.info;
    const Health health = health_of(status);
    print_field("Volume:", (info.label.empty() ? "" : quoted(info.label) + "  ") + uuid_text(info.uuid));
    print_field("Mounted:", status.report.mount_point);
    print_field("Options:", options_shown(status.report.mount_options));
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
    if (status.replace.state != ReplaceStatus::State::kNone)
        print_field("Replacement:", replace_summary(status.replace));
    if (status.balance.state != BalanceStatus::State::kNone)
        print_field("Balance:", balance_summary(status.balance));
    print_empty_line(stdout);
    print_members(status, sizes);
    print_empty_line(stdout);
    if (status.damage && info.damaged_blocks > 0)
        print_damage(*status.damage);
}

Result<VolumeStatus> ask_shown(const Uuid& uuid, bool names_files, Json& answer, std::string& why)
{
    CW_ASSIGN(VolumeStatus status, ask_volume_status(uuid, answer, why));
    if (!names_files)
        return status;
    CW_ASSIGN(ControlClient client,
              connect_target({.uuid = uuid, .mounted = true, .members = {}, .named_device = {}}, why));
    CW_ASSIGN(Json damage, client.call("damage", nullptr, why));
    CW_ASSIGN(status.damage, decode_damage(damage.get()));
    json_put(answer.get(), "damage", std::move(damage));
    return status;
}

// What is wrong with a mount whose daemon gave no answer; empty: nothing, others may ask it.
std::string silence_of(const MountEntry& entry)
{
    if (says_it_is_dead(entry.directory))
        return "its daemon is dead: unmount it and mount the volume again";
    return entry.is_of_this_user() ? "its daemon does not answer (stopped or busy)" : "";
}

// As --check has it.
int check_code(const Health& health)
{
    const std::string_view state = health.state;
    if (state == "DAMAGED" || state == "READ-ONLY")
        return kExitFaulted;
    return health.what.empty() ? kExitOk : kExitDegraded;
}

// Says that nobody answers for a volume, and adds it to `list`, which JSON has. `key`: what `name` is.
void add_silent(const CommandOptions& options, json_t* list, const char* key, const std::string& name,
                const std::string& problem)
{
    Json one = json_make_object();
    json_put_text(one.get(), key, name);
    json_put_text(one.get(), "problem", problem);
    json_array_append_new(list, one.release());
    if (options.format != OutputFormat::kJson)
        print_line(stderr, "cowraid: %s: %s", quoted(name).c_str(), problem.c_str());
}

// Mounts of this user that no daemon answered for are said, and added to `list`. False: there are some.
bool all_answer(const CommandOptions& options, const std::vector<MountedVolume>& answered, json_t* list)
{
    const auto table = read_mount_table();
    bool all = true;
    for (const MountEntry& entry : table.ok() ? *table : std::vector<MountEntry>()) {
        const bool known = std::any_of(answered.begin(), answered.end(), [&](const MountedVolume& volume) {
            return volume.device == entry.device ||
                   (volume.device.empty() && volume.mount_point == entry.directory);
        });
        const std::string silence = !entry.is_cowraid() || known ? "" : silence_of(entry);
        if (silence.empty())
            continue;
        all = false;
        add_silent(options, list, "mount_point", entry.directory, silence);
    }
    return all;
}

int show_once(const StatusArguments& arguments)
{
    const CommandOptions& options = arguments.common;
    std::string why;
    const bool all_volumes = options.operands.empty();
    const std::vector<MountedVolume> answered =
        all_volumes ? list_mounted_volumes() : std::vector<MountedVolume>();
    Result<std::vector<Uuid>> volumes = std::vector<Uuid>();
    if (!all_volumes)
        volumes = chosen_volumes(options, why);
    const int failed = arguments.check ? kExitUnknown : kExitFailed;
    if (!volumes.ok()) {
        command_failed(options, volumes.err(), why);
        return failed;
    }
    for (const MountedVolume& volume : answered)
        volumes->push_back(volume.uuid);
    Json silent = json_make_array();
    int code = !all_volumes || all_answer(options, answered, silent.get()) ? kExitOk : failed;
    size_t shown = 0;
    Json list = json_make_array();
    for (const Uuid& uuid : *volumes) {
        Json answer;
        const auto status = ask_shown(uuid, arguments.names_files, answer, why);
        if (!status.ok()) {
            code = failed;
            add_silent(options, silent.get(), "uuid", uuid_text(uuid), why);
            continue;
        }
        if (arguments.check)
            code = std::max(code, check_code(health_of(*status)));
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
        json_put(out.get(), "not_answering", std::move(silent));
        print_json(out.get());
    } else if (shown == 0 && code == kExitOk) {
        print_line(stdout, "%s",
                   volumes->empty() ? "no volume is mounted; cowraid filesystem show looks for them"
                                    : "all volumes are healthy");
    }
    return arguments.check && volumes->empty() ? kExitUnknown : code;
}

}  // namespace

int command_status(int argc, char** argv, CommandOptions common)
{
    StatusArguments arguments{.common = std::move(common)};
    // Its code for a wrong command line means something else here.
    const bool check = std::find(argv, argv + argc, std::string_view("--check")) != argv + argc;
    if (check)
        argp_err_exit_status = kExitUnknown;
    if (!parse_status(argc, argv, arguments))
        return check ? kExitUnknown : kExitUsage;
    if (arguments.watch_seconds == 0)
        return show_once(arguments);
    notice_interrupts();
    int code = kExitOk;
    while (!interrupted()) {
        if (isatty(STDOUT_FILENO) == 1)
            print_line(stdout, "\033[H\033[2J");
        code = show_once(arguments);
        fflush(stdout);
        sleep(arguments.watch_seconds);
    }
    return code;
}

}  // namespace cowraid
