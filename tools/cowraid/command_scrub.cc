// SPDX-License-Identifier: MIT
// cowraid scrub, and scrub start, status, pause, resume, cancel
#include <unistd.h>

#include <cstdio>
#include <ctime>

#include "base/print.h"
#include "control/scrub_json.h"
#include "tools/cowraid/mounted_command.h"
#include "tools/cowraid/work_text.h"

namespace cowraid {

namespace {

constexpr int kKeyLimit = 256, kKeyPlan = 260, kKeyOlderThan = 261, kKeyCheck = 263;

struct StartOptions {
    CommandOptions common;
    bool wait = false;
    bool members = false;
    bool given = false;  // how it scrubs
    ScrubOptions scrub;
};

constexpr argp_option kStartOptions[] = {
    {nullptr, 'B', nullptr, 0, "wait for its end; exit with 3 when something is damaged and stays so", 0},
    {nullptr, 'd', nullptr, 0, "with -B: at its end each member, too: its state, and what was found on it",
     0},
    {nullptr, 'r', nullptr, 0, "look only: repair nothing", 0},
    {"limit", kKeyLimit, "SIZE", 0, "read this much of all members per second at most, like 100m", 0},
    {"plan", kKeyPlan, "PLAN", 0,
     "which block groups: full (all, the default), 10% (about so much of the data, from where the last such "
     "scrub ended), "
     "new (never verified), bad (with damaged blocks); tree nodes and superblocks are always verified",
     0},
    {"older-than", kKeyOlderThan, "DAYS", 0, "only block groups not verified for so many days, like 10d", 0},
    {},
};

// "10%" is a plan by percent.
bool parse_plan(const std::string& text, ScrubOptions& options)
{
    if (!text.ends_with('%'))
        return parse_scrub_plan(text, options.plan) && options.plan != ScrubOptions::Plan::kPercent;
    char* end = nullptr;
    const unsigned long percent = strtoul(text.c_str(), &end, 10);
    options.plan = ScrubOptions::Plan::kPercent;
    options.percent = static_cast<uint32_t>(percent);
    return end == text.c_str() + text.size() - 1 && percent >= 1 && percent <= 100 && text[0] != '-';
}

// "10d" or "10" are days, "36h" hours.
bool parse_age(const std::string& text, uint64_t& seconds)
{
    char* end = nullptr;
    const unsigned long number = strtoul(text.c_str(), &end, 10);
    const std::string unit = end;
    const uint64_t each = unit.empty() || unit == "d" ? 86400 : unit == "h" ? 3600 : 0;
    seconds = number * each;
    return each > 0 && number >= 1 && number <= 100000 && text[0] >= '0' && text[0] <= '9';
}

error_t parse_start_option(int key, char* argument, argp_state* state)
{
    auto& options = *static_cast<StartOptions*>(state->input);
    switch (key) {
    case 'r':
        options.scrub.mode = ScrubMode::kLook;
        options.given = true;
        return 0;
    case kKeyLimit: {
        const Result<uint64_t> limit = parse_size(argument);
        options.given = true;
        if (!limit.ok() || *limit == 0)
            argp_error(state, "--limit needs a size like 100m, not %s", quoted(argument).c_str());
        else
            options.scrub.limit = *limit;
        return 0;
    }
    case kKeyPlan:
        options.given = true;
        if (!parse_plan(argument, options.scrub))
            argp_error(state, "--plan is full, new, bad or a percentage like 10%%, not %s",
                       quoted(argument).c_str());
        return 0;
    case kKeyOlderThan:
        options.given = true;
        if (!parse_age(argument, options.scrub.older_than))
            argp_error(state, "--older-than takes days like 10d, or hours like 36h, not %s",
                       quoted(argument).c_str());
        return 0;
    default:
        return parse_flags(key, state, options.common, {{'B', &options.wait}, {'d', &options.members}});
    }
}

bool parse_start(int argc, char** argv, const char* doc, StartOptions& options)
{
    const std::string text = std::string(doc) +
                             "\vExit code 3, when it is waited for: something is not as it "
                             "should be, and was not repaired.";
    return parse_command(argc, argv, {kStartOptions, parse_start_option, "[VOLUME]", text.c_str()}, &options);
}

struct ScrubStatusOptions {
    CommandOptions common;
    bool check = false;
    bool members = false;
};

constexpr argp_option kScrubStatusOptions[] = {
    {nullptr, 'd', nullptr, 0, "each member, too: its state, and what the scrub found on it", 0},
    {"check", kKeyCheck, nullptr, 0, "exit with 3 when something is damaged and stays so", 0},
    {},
};

error_t parse_scrub_status(int key, char*, argp_state* state)
{
    auto& options = *static_cast<ScrubStatusOptions*>(state->input);
    return parse_flags(key, state, options.common, {{kKeyCheck, &options.check}, {'d', &options.members}});
}

Result<ScrubStatus> ask(ControlClient& client, const char* command, const json_t* arguments, std::string& why)
{
    CW_ASSIGN(const Json answer, client.call(command, arguments, why));
    return decode_scrub(answer.get());
}

Result<ScrubStatus> ask_status(ControlClient& client, std::string& why)
{
    CW_ASSIGN(const Json answer, client.ask("scrub-status", why));
    return decode_scrub(answer.get());
}

// kExitOk, or why the figures of the members are not there, which were asked for.
int print(ControlClient& client, const CommandOptions& options, const ScrubStatus& status,
          bool with_members = false)
{
    const auto mounted = client.mounted_volume();
    Json answer;
    std::string why;
    const bool json = options.format == OutputFormat::kJson;
    const auto volume = mounted.ok() && (json || with_members) ? ask_volume_status(mounted->uuid, answer, why)
                                                               : Result<VolumeStatus>(Err::kNotFound);
    if (with_members && !volume.ok())
        return command_failed(options, volume.err(), why);
    if (json) {
        Json out = encode_scrub(status);
        if (volume.ok())
            add_scrub_sessions(status, answer.get(), out.get());
        print_json(out.get());
        return kExitOk;
    }
    const auto now = static_cast<uint64_t>(time(nullptr));
    print_lines(scrub_text(status, mounted.ok() ? mounted->uuid : Uuid(), now, options.sizes));
    if (with_members && status.state != ScrubState::kNone)
        for (const MemberInfo& member : volume->report.info.members)
            print_lines(scrub_member_text(status, member, state_of(member, *volume), options.sizes));
    return kExitOk;
}

int findings_code(const ScrubStatus& status)
{
    const bool finished = status.state == ScrubState::kFinished;
    return status.damaged() || (finished && !status.all_well()) ? kExitFindings : kExitOk;
}

int finish(ControlClient& client, const CommandOptions& options, bool with_members)
{
    std::string why;
    const auto status = follow_work<ScrubStatus>(client, options, ask_status, scrub_progress,
                                                 "the scrub goes on when it is mounted again", why);
    if (!status.ok())
        return command_failed(options, status.err(), why);
    const int printed = print(client, options, *status, with_members);
    if (status->state == ScrubState::kRunning)
        print_line(stderr, "cowraid: the scrub goes on; cowraid scrub cancel ends it");
    else if (status->state == ScrubState::kPaused)
        print_line(stderr, "cowraid: the scrub was paused; cowraid scrub resume lets it go on");
    else if (status->state == ScrubState::kCancelled)
        print_line(stderr, "cowraid: the scrub was cancelled");
    const int code = findings_code(*status);
    if (code == kExitOk && printed != kExitOk)
        return printed;
    return code == kExitOk && status->state != ScrubState::kFinished ? kExitFailed : code;
}

Json arguments_of(const ScrubOptions& options)
{
    Json arguments = json_make_object();
    json_put_flag(arguments.get(), "repair", options.mode == ScrubMode::kRepair);
    json_put_integer(arguments.get(), "limit", options.limit);
    json_put_text(arguments.get(), "plan", scrub_plan_name(options.plan));
    json_put_integer(arguments.get(), "percent", options.percent);
    json_put_integer(arguments.get(), "older_than", options.older_than);
    return arguments;
}

// A command without options of its own: answers with the status.
int run_simple(int argc, char** argv, CommandOptions options, const char* doc, const char* command)
{
    if (!parse_common(argc, argv, "[VOLUME]", doc, options) || !one_volume(options))
        return kExitUsage;
    std::string why;
    auto client = connect_mounted(options, why);
    if (!client.ok())
        return command_failed(options, client.err(), why);
    const auto status = ask(*client, command, nullptr, why);
    if (!status.ok())
        return change_failed(options, status.err(), why);
    print(*client, options, *status);
    return kExitOk;
}

}  // namespace

int command_scrub(int argc, char** argv, CommandOptions common)
{
    StartOptions options{.common = std::move(common)};
    if (!parse_start(argc, argv, "Verify and repair a mounted volume, and show how far it is.", options) ||
        !one_volume(options.common))
        return kExitUsage;
    std::string why;
    auto client = connect_mounted(options.common, why);
    if (!client.ok())
        return command_failed(options.common, client.err(), why);
    notice_interrupts();  // what it begins goes on, and the user is told
    const Json arguments = arguments_of(options.scrub);
    const auto started = ask(*client, "scrub-start", arguments.get(), why);
    if (!started.ok()) {
        // One that runs already is followed, if it may be any.
        std::string ignored;
        const auto running = ask(*client, "scrub-status", nullptr, ignored);
        if (started.err() != Err::kBusy || options.given || !running.ok() ||
            running->state != ScrubState::kRunning)
            return command_failed(options.common, started.err(), why);
        print_line(stderr, "cowraid: a scrub is under way already; this is what it does");
    }
    return finish(*client, options.common, options.members);
}

int command_scrub_start(int argc, char** argv, CommandOptions common)
{
    StartOptions options{.common = std::move(common)};
    if (!parse_start(argc, argv, "Begin to verify and repair a mounted volume.", options) ||
        !one_volume(options.common))
        return kExitUsage;
    std::string why;
    auto client = connect_mounted(options.common, why);
    if (!client.ok())
        return command_failed(options.common, client.err(), why);
    if (options.wait)
        notice_interrupts();
    const Json arguments = arguments_of(options.scrub);
    const auto started = ask(*client, "scrub-start", arguments.get(), why);
    if (!started.ok())
        return command_failed(options.common, started.err(), why);
    if (options.wait)
        return finish(*client, options.common, options.members);
    if (options.common.format == OutputFormat::kJson)
        print_json(encode_scrub(*started).get());
    else
        print_line(stdout, "scrub started; see cowraid scrub status");
    return kExitOk;
}

int command_scrub_status(int argc, char** argv, CommandOptions common)
{
    ScrubStatusOptions options{.common = std::move(common)};
    if (!parse_command(argc, argv,
                       {kScrubStatusOptions, parse_scrub_status, "[VOLUME]",
                        "Show how far the scrub is and what it found."},
                       &options) ||
        !one_volume(options.common))
        return kExitUsage;
    std::string why;
    auto client = connect_mounted(options.common, why);
    if (!client.ok())
        return command_failed(options.common, client.err(), why);
    const auto status = ask_status(*client, why);
    if (!status.ok())
        return command_failed(options.common, status.err(), why);
    const int printed = print(*client, options.common, *status, options.members);
    return printed == kExitOk && options.check ? findings_code(*status) : printed;
}

int command_scrub_pause(int argc, char** argv, CommandOptions options)
{
    return run_simple(argc, argv, std::move(options),
                      "Let the scrub rest where it is.\vExit code 2, too: no scrub is running.",
                      "scrub-pause");
}

int command_scrub_resume(int argc, char** argv, CommandOptions options)
{
    return run_simple(argc, argv, std::move(options),
                      "Let a paused scrub go on.\vExit code 2, too: no scrub is paused.", "scrub-resume");
}

int command_scrub_cancel(int argc, char** argv, CommandOptions options)
{
    return run_simple(argc, argv, std::move(options),
                      "End the scrub.\vExit code 2, too: no scrub is running or paused.", "scrub-cancel");
}

}  // namespace cowraid
