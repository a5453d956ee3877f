// SPDX-License-Identifier: MIT
// cowraid balance, and balance start, status, pause, resume, cancel
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/print.h"
#include "control/balance_json.h"
#include "control/volume_json.h"
#include "tools/cowraid/mounted_command.h"

namespace cowraid {

namespace {

using State = BalanceStatus::State;

constexpr int kKeyConvert = 256;
constexpr int kKeyMetadata = 257;
constexpr int kKeyFullBalance = 259;

// What is said of data, or of metadata.
struct BalanceFilter {
    bool given = false;
    std::string profile;  // empty: as it is
    std::string usage;  // percent; empty: any
};

struct BalanceArguments {
    CommandOptions common;
    BalanceFilter data, metadata;
    bool force = false;
    bool background = false;
};

constexpr argp_option kBalanceOptions[] = {
    {"convert", kKeyConvert, "PROFILE", 0, "make data PROFILE; metadata is raised to what it tolerates", 0},
    {"metadata", kKeyMetadata, "PROFILE", 0, "make metadata PROFILE", 0},
    {nullptr, 'd', "FILTERS", OPTION_ARG_OPTIONAL, "data: convert=PROFILE,soft,usage=PERCENT", 0},
    {nullptr, 'm', "FILTERS", OPTION_ARG_OPTIONAL, "metadata: the same", 0},
    {"force", 'f', nullptr, 0, "also when fewer devices may be lost afterwards", 0},
    {"background", kKeyBackground, nullptr, 0, "do not wait for its end", 0},
    {"bg", kKeyBackground, nullptr, OPTION_ALIAS, nullptr, 0},
    {"full-balance", kKeyFullBalance, nullptr, OPTION_HIDDEN, nullptr, 0},
    {},
};

// "convert=raid6,soft,usage=50". False: said what is wrong.
bool parse_filters(const char* text, BalanceFilter& filter, argp_state* state)
{
    filter.given = true;
    std::string rest = text == nullptr ? "" : text;
    while (!rest.empty()) {
        const size_t end = std::min(rest.find(','), rest.size());
        const std::string word = rest.substr(0, end);
        rest.erase(0, std::min(end + 1, rest.size()));
        if (word.starts_with("convert=")) {
            filter.profile = word.substr(strlen("convert="));
        } else if (word.starts_with("usage=")) {
            filter.usage = word.substr(strlen("usage="));
        } else if (word != "soft") {
            argp_error(state, "there is no filter %s; there are convert=PROFILE, soft, usage=PERCENT",
                       quoted(word).c_str());
            return false;
        }
    }
    return true;
}

error_t parse_balance_option(int key, char* argument, argp_state* state)
{
    auto& arguments = *static_cast<BalanceArguments*>(state->input);
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &arguments.common;
        return 0;
    case kKeyConvert:
        arguments.data.given = true;
        arguments.data.profile = argument;
        return 0;
    case kKeyMetadata:
        arguments.metadata.given = true;
        arguments.metadata.profile = argument;
        return 0;
    case 'd':
        return parse_filters(argument, arguments.data, state) ? 0 : EINVAL;
    case 'm':
        return parse_filters(argument, arguments.metadata, state) ? 0 : EINVAL;
    case 'f':
        arguments.force = true;
        return 0;
    case kKeyBackground:
        arguments.background = true;
        return 0;
    case kKeyFullBalance:
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

bool parse_balance(int argc, char** argv, BalanceArguments& arguments)
{
    static const argp_child children[] = {{&kCommonParser, 0, nullptr, 0}, {}};
    const argp parser = {
        .options = kBalanceOptions,
        .parser = parse_balance_option,
        .args_doc = "[VOLUME]",
        .doc = "Move what is in block groups of a mounted volume into new ones: of another profile, over all "
               "devices, or fuller.\vIt goes on after an unmount or a crash. Ctrl-C ends the waiting only; "
               "cowraid balance cancel ends it.",
        .children = children,
        .help_filter = nullptr,
        .argp_domain = nullptr};
    return argp_parse(&parser, argc, argv, 0, nullptr, &arguments) == 0;
}

bool refuse(const BalanceArguments& arguments, const std::string& why)
{
    print_error(kProgram, arguments.common.format, Err::kInvalid, why);
    return false;
}

bool known_profile(const BalanceArguments& arguments, const std::string& name)
{
    return name.empty() || find_profile(std::string_view(name)) != nullptr ||
           refuse(arguments, "there is no profile " + quoted(name) + "; see mkfs.cowraid --help");
}

// Percent from 0 to 100.
bool parse_usage(const BalanceArguments& arguments, const std::string& text, uint64_t& usage)
{
    char* end = nullptr;
    const unsigned long value = strtoul(text.c_str(), &end, 10);
    if (text.empty() || *end != '\0' || text.find_first_not_of("0123456789") != std::string::npos ||
        value > 100)
        return refuse(arguments, "usage is a number of percent, not " + quoted(text));
    usage = value;
    return true;
}

// What a balance is asked to do. False: said why not.
bool make_request(const BalanceArguments& arguments, json_t* request)
{
    const BalanceFilter& data = arguments.data;
    const BalanceFilter& metadata = arguments.metadata;
    const bool all = !data.given && !metadata.given;
    const bool convert = !data.profile.empty() || !metadata.profile.empty();
    uint64_t usage = 100;
    if (!known_profile(arguments, data.profile) || !known_profile(arguments, metadata.profile))
        return false;
    if (convert && ((data.given && data.profile.empty()) || (metadata.given && metadata.profile.empty())))
        return refuse(arguments, "converting one of data and metadata and only moving the other takes two "
                                 "balances");
    if (data.given && metadata.given && data.usage != metadata.usage)
        return refuse(arguments, "one usage for data and metadata, or two balances");
    const std::string& text = data.given ? data.usage : metadata.usage;
    if (!text.empty() && !parse_usage(arguments, text, usage))
        return false;
    json_put_text(request, "action", "start");
    json_put_text(request, "data_profile", data.profile);
    json_put_text(request, "metadata_profile", metadata.profile);
    json_put_flag(request, "data", all || data.given);
    json_put_flag(request, "metadata", all || metadata.given);
    json_put_flag(request, "convert", convert);
    json_put_flag(request, "force", arguments.force);
    json_put_integer(request, "usage_max", usage);
    return true;
}

constexpr const char* kStatusAction = "status";  // waits for nothing: a command of its own

Result<BalanceStatus> ask_balance(ControlClient& client, const json_t* request, std::string& why)
{
    CW_ASSIGN(const Json answer, client.call("balance", request, why));
    return decode_balance(answer.get());
}

Result<BalanceStatus> ask_balance(ControlClient& client, const char* action, std::string& why)
{
    if (std::string_view(action) == kStatusAction) {
        CW_ASSIGN(const Json answer, client.ask("balance-status", why));
        return decode_balance(answer.get());
    }
    const Json request = json_make_object();
    json_put_text(request.get(), "action", action);
    return ask_balance(client, request.get(), why);
}

uint64_t bytes_done(const BalanceStatus& status)
{
    return status.bytes_total - std::min(status.bytes_total, status.bytes_left);
}

std::string purpose_text(const BalanceStatus& status)
{
    if (status.member.value != 0)
        return "empties member " + std::to_string(status.member.value) + " and removes it";
    std::string text = status.convert ? "converts" : "moves";
    if ((status.content & kGroupData) != 0)
        text += status.convert ? std::string(" data to ") + profile_name(status.profiles.data) : " data";
    if ((status.content & kGroupMetadata) != 0) {
        text += (status.content & kGroupData) != 0 ? " and metadata" : " metadata";
        text += status.convert ? std::string(" to ") + profile_name(status.profiles.metadata) : "";
    }
    return text + (status.usage_max < 100
                       ? " in block groups of which at most " + std::to_string(status.usage_max) + "% is used"
                       : "");
}

std::string result_text(const BalanceStatus& status)
{
    if (status.groups_stuck > 0)
        return count_text(status.groups_stuck, "block group") +
               " cannot be emptied: something in them cannot be read; run cowraid scrub" +
               (status.member.value != 0 ? "; the member stays" : "");
    if (status.waits_for_room && status.state == State::kRunning)
        return "waits for room: remove files, or add devices";
    if (status.state == State::kFinished && status.member.value != 0)
        return "done; the device stays in use until the volume is unmounted";
    return status.state == State::kFinished ? "done" : "";
}

void print_status(const BalanceStatus& status, SizeStyle sizes)
{
    if (status.state == State::kNone) {
        print_line(stdout, "no balance is under way");
        return;
    }
    print_field("Status:", balance_state_name(status.state));
    print_field("What:", purpose_text(status));
    if (status.started != 0)
        print_field("Since:", time_text(status.started));
    const WorkProgress progress = balance_progress(status);
    print_field("Done:", std::to_string(progress.percent) + "%, " + size_text(bytes_done(status), sizes) +
                             " of " + size_text(status.bytes_total, sizes));
    if (progress.running) {
        print_field("Rate:", size_text(progress.rate, sizes) + "/s");
        print_field("Time left:", duration_text(progress.left_ms));
    }
    print_field("Block groups left:", std::to_string(status.groups_left));
    if (const std::string result = result_text(status); !result.empty())
        print_field("Result:", result);
}

void print(const CommandOptions& options, const BalanceStatus& status)
{
    if (options.format == OutputFormat::kJson)
        print_json(encode_balance(status).get());
    else
        print_status(status, options.sizes);
}

Result<BalanceStatus> ask_balance_status(ControlClient& client, std::string& why)
{
    return ask_balance(client, kStatusAction, why);
}

int wait_for_balance(ControlClient& client, const CommandOptions& options)
{
    std::string why;
    const auto status = follow_work<BalanceStatus>(client, options, ask_balance_status, balance_progress,
                                                   "the balance goes on when it is mounted", why);
    if (!status.ok())
        return command_failed(options, status.err(), why);
    print(options, *status);
    if (status->state == State::kRunning)
        print_line(stderr, "cowraid: the balance goes on; cowraid balance cancel ends it");
    else if (status->state == State::kPaused)
        print_line(stderr, "cowraid: the balance was paused; cowraid balance resume lets it go on");
    else if (status->state == State::kCancelled)
        print_line(stderr, "cowraid: the balance was cancelled");
    if (status->groups_stuck > 0)
        return kExitFindings;
    return status->state == State::kFinished ? kExitOk : kExitFailed;
}

// A command without options of its own: answers with the status.
int run_action(int argc, char** argv, CommandOptions options, const char* doc, const char* action)
{
    if (!parse_common(argc, argv, "[VOLUME]", doc, options) || !one_volume(options))
        return kExitUsage;
    std::string why;
    auto client = connect_mounted(options, why);
    if (!client.ok())
        return command_failed(options, client.err(), why);
    const auto status = ask_balance(*client, action, why);
    if (!status.ok())
        return command_failed(options, status.err(), why);
    print(options, *status);
    return kExitOk;
}

}  // namespace

WorkProgress balance_progress(const BalanceStatus& status)
{
    const auto now = static_cast<uint64_t>(time(nullptr));
    const uint64_t seconds = std::max<uint64_t>(now - std::min(now, status.started), 1);
    WorkProgress progress = progress_of(bytes_done(status), status.bytes_total, seconds * 1000);
    progress.running = status.state == State::kRunning;
    if (status.state == State::kFinished)
        progress.percent = 100;
    return progress;
}

std::string balance_summary(const BalanceStatus& status)
{
    const std::string result = result_text(status);
    const WorkProgress progress = balance_progress(status);
    return std::string(balance_state_name(status.state)) + ", " + purpose_text(status) + ", " +
           (progress.running ? progress_text(progress) : std::to_string(progress.percent) + "% done") +
           (result.empty() || result == "done" ? "" : "; " + result);
}

int command_balance(int argc, char** argv, CommandOptions common)
{
    BalanceArguments arguments{.common = std::move(common)};
    const Json request = json_make_object();
    if (!parse_balance(argc, argv, arguments) || !one_volume(arguments.common) ||
        !make_request(arguments, request.get()))
        return kExitUsage;
    std::string why;
    auto client = connect_mounted(arguments.common, why);
    if (!client.ok())
        return command_failed(arguments.common, client.err(), why);
    return run_balance(*client, arguments.common, request.get(),
                       arguments.background ? Wait::kNot : Wait::kForEnd);
}

int run_balance(ControlClient& client, const CommandOptions& options, const json_t* request, Wait wait)
{
    std::string why;
    const auto started = ask_balance(client, request, why);
    if (!started.ok())
        return command_failed(options, started.err(), why);
    if (wait == Wait::kForEnd)
        return wait_for_balance(client, options);
    if (options.format == OutputFormat::kJson)
        print_json(encode_balance(*started).get());
    else
        print_line(stdout, "%s; see cowraid balance status",
                   started->member.value != 0 ? "the member is being emptied" : "balance started");
    return kExitOk;
}

int command_balance_status(int argc, char** argv, CommandOptions options)
{
    return run_action(argc, argv, std::move(options), "Show how far the balance is.", kStatusAction);
}

int command_balance_pause(int argc, char** argv, CommandOptions options)
{
    return run_action(argc, argv, std::move(options), "Let the balance rest; mounts leave it so.", "pause");
}

int command_balance_resume(int argc, char** argv, CommandOptions options)
{
    return run_action(argc, argv, std::move(options), "Let a paused balance go on.", "resume");
}

int command_balance_cancel(int argc, char** argv, CommandOptions options)
{
    return run_action(
        argc, argv, std::move(options),
        "End the balance. What was moved stays where it is, block groups that are marked are still emptied; "
        "new ones are made as it said.",
        "cancel");
}

}  // namespace cowraid
