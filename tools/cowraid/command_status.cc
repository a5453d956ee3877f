// SPDX-License-Identifier: MIT
// cowraid status
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/print.h"
#include "control/mount_table.h"
#include "tools/cowraid/mounted_command.h"
#include "tools/cowraid/status_text.h"

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

// 0: it is none.
unsigned seconds_of(const char* text)
{
    constexpr uint64_t kDay = 86400;
    const Result<uint64_t> seconds = parse_number(text);
    return seconds.ok() && *seconds <= kDay ? static_cast<unsigned>(*seconds) : 0;
}

error_t parse_status_option(int key, char* text, argp_state* state)
{
    auto& arguments = *static_cast<StatusArguments*>(state->input);
    switch (key) {
    case kKeyWatch:
        arguments.watch_seconds = text == nullptr ? 1 : seconds_of(text);
        if (arguments.watch_seconds == 0)
            argp_error(state, "--watch takes a number of seconds, up to a day, not %s", quoted(text).c_str());
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
         "is lost; 2 data is lost, or writing stopped; 4 that cannot be told: a "
         "daemon does not answer, no volume is mounted, or the command line is wrong. Of "
         "several volumes the highest counts."},
        &arguments);
}

// All damaged files, as the daemon names them, some at a time.
Result<Json> ask_damage(ControlClient& client, std::string& why)
{
    CW_ASSIGN(Json all, client.call("damage", nullptr, why));
    json_t* const files = json_object_get(all.get(), "files");
    uint64_t left = json_get_integer(all.get(), "file_count") - json_array_size(files);
    while (left > 0 && json_array_size(files) > 0) {
        const json_t* const last = json_array_get(files, json_array_size(files) - 1);
        const uint64_t after = json_get_integer(last, "inode");
        Json request = json_make_object();
        json_put_integer(request.get(), kDamageAfter, after);
        CW_ASSIGN(const Json more, client.call("damage", request.get(), why));
        json_t* const page = json_object_get(more.get(), "files");
        if (json_get_integer(json_array_get(page, 0), "inode") <= after)
            break;  // none: what was damaged is changed by now
        left = json_get_integer(more.get(), "file_count") - json_array_size(page);
        json_array_extend(files, page);
    }
    return all;
}

Result<VolumeStatus> ask_shown(const Uuid& uuid, bool names_files, Json& answer, std::string& why)
{
    CW_ASSIGN(VolumeStatus status, ask_volume_status(uuid, answer, why));
    if (!names_files)
        return status;
    CW_ASSIGN(ControlClient client,
              connect_target({.uuid = uuid, .mounted = true, .members = {}, .named_device = {}}, why));
    CW_ASSIGN(Json damage, ask_damage(client, why));
    CW_ASSIGN(status.damage, decode_damage(damage.get()));
    json_put(answer.get(), "damage", std::move(damage));
    return status;
}

struct Silence {
    std::string problem;
    bool counts = true;  // false: nothing says that the volume is not well
};

// Why nobody answered for a mount. `all_answer`: every daemon that has a socket where this program looks.
Silence silence_of(const MountEntry& entry, bool all_answer)
{
    if (says_it_is_dead(entry.directory))
        return {"its daemon is dead: unmount it and mount the volume again"};
    if (!entry.is_of_this_user()) {
        const std::string who = entry.owner == "0" ? "root" : "user " + entry.owner;
        return {who + " mounted it; only " + who + " may ask its daemon", false};
    }
    if (all_answer)
        return {"it has no control socket here; is it served with another COWRAID_RUN_DIR?", false};
    return {"its daemon does not answer (stopped or busy)"};
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

// Mounts that no daemon answered for are said, and added to `list`; those of others where none is of this
// user. False: one of them may not be well.
bool add_unanswered(const CommandOptions& options, const std::vector<MountedVolume>& answered,
                    bool all_answer, json_t* list)
{
    const auto table = read_mount_table();
    bool all_well = true;
    for (const MountEntry& entry : table.ok() ? *table : std::vector<MountEntry>()) {
        const bool known = std::any_of(answered.begin(), answered.end(), [&](const MountedVolume& volume) {
            return volume.device == entry.device ||
                   (volume.device.empty() && volume.mount_point == entry.directory);
        });
        if (!entry.is_cowraid() || known)
            continue;
        const Silence silence = silence_of(entry, all_answer);
        all_well = all_well && !silence.counts;
        if (silence.counts || entry.is_of_this_user() || answered.empty())
            add_silent(options, list, "mount_point", entry.directory, silence.problem);
    }
    return all_well;
}

int show_once(const StatusArguments& arguments)
{
    const CommandOptions& options = arguments.common;
    std::string why;
    const bool all_volumes = options.operands.empty();
    std::vector<int> not_answering;
    const std::vector<MountedVolume> answered =
        all_volumes ? list_mounted_volumes(&not_answering) : std::vector<MountedVolume>();
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
    const bool well = !all_volumes || add_unanswered(options, answered, not_answering.empty(), silent.get());
    int code = well ? kExitOk : failed;
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
            print_lines(status_text(*status, options.sizes));
    }
    if (options.format == OutputFormat::kJson) {
        Json out = json_with_schema("status");
        json_put(out.get(), "volumes", std::move(list));
        json_put(out.get(), "not_answering", std::move(silent));
        print_json(out.get());
    } else if (shown == 0 && code == kExitOk && (!volumes->empty() || json_array_size(silent.get()) == 0)) {
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
