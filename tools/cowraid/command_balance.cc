// SPDX-License-Identifier: MIT
// cowraid balance, and balance start, status, pause, resume, cancel
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

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

// What is said of data, of metadata, or of system trees.
struct ContentArguments {
    bool given = false;
    std::string profile;  // empty: as it is
    BalanceFilter filter;
};

struct BalanceArguments {
    CommandOptions common;
    ContentArguments data, metadata, system;
    bool force = false;
    bool background = false;
    bool plan = false;
};

constexpr const char* kFilterHelp =
    "there are convert=PROFILE, soft, usage=PERCENT, profiles=PROFILE|..., devid=ID, limit=NUMBER, "
    "stripes=DEVICES, vrange=ADDRESSES, drange=OFFSETS; a range is MOST, LEAST..MOST, LEAST.. or ..MOST";

constexpr argp_option kBalanceOptions[] = {
    {"convert", kKeyConvert, "PROFILE", 0, "make data PROFILE; metadata is raised to what it tolerates", 0},
    {"metadata", kKeyMetadata, "PROFILE", 0, "make metadata PROFILE", 0},
    {nullptr, 'd', "FILTERS", OPTION_ARG_OPTIONAL,
     "data, only of block groups that all FILTERS let through; convert= raises metadata, too, as --convert",
     0},
    {nullptr, 'm', "FILTERS", OPTION_ARG_OPTIONAL, "metadata: the same", 0},
    {nullptr, 's', "FILTERS", OPTION_ARG_OPTIONAL, "system trees, which else go with metadata: the same", 0},
    {"force", 'f', nullptr, 0, "also when fewer devices may be lost afterwards", 0},
    {"background", kKeyBackground, nullptr, 0, "do not wait for its end", 0},
    {"bg", kKeyBackground, nullptr, OPTION_ALIAS, nullptr, 0},
    {"plan", kKeyPlanOnly, nullptr, 0, kPlanHelp, 0},
    {"full-balance", kKeyFullBalance, nullptr, OPTION_HIDDEN, nullptr, 0},
    {},
};

// "50" (a bound above), "10..50", "..50", "10..". False: it is none of these.
bool parse_range(const std::string& text, FilterRange& range)
{
    const size_t dots = text.find("..");
    const std::string least = dots == std::string::npos ? "" : text.substr(0, dots);
    const std::string most = dots == std::string::npos ? text : text.substr(dots + 2);
    if (least.empty() && most.empty())
        return false;
    const Result<uint64_t> from = least.empty() ? Result<uint64_t>(uint64_t{0}) : parse_size(least);
    const Result<uint64_t> to = most.empty() ? Result<uint64_t>(UINT64_MAX) : parse_size(most);
    if (!from.ok() || !to.ok() || *from > *to)
        return false;
    range = {*from, *to};
    return true;
}

// "raid1|raid5". False: one of them is none.
bool parse_profiles(const std::string& text, uint32_t& profiles)
{
    for (std::string rest = text; !rest.empty();) {
        const size_t end = std::min(rest.find('|'), rest.size());
        const Profile* const profile = find_profile(std::string_view(rest.substr(0, end)));
        if (profile == nullptr)
            return false;
        profiles |= 1U << static_cast<uint32_t>(profile->id);
        rest.erase(0, std::min(end + 1, rest.size()));
    }
    return profiles != 0;
}

// One of them, NAME=VALUE. False: there is none of that name, or not with that value.
bool parse_filter(const std::string& name, const std::string& value, ContentArguments& content)
{
    BalanceFilter& filter = content.filter;
    if (name == "convert") {
        content.profile = value;
        return !value.empty();
    }
    if (name == "usage")
        return parse_range(value, filter.usage) &&
               (filter.usage.most <= 100 || filter.usage.most == UINT64_MAX);
    if (name == "limit")
        return parse_range(value, filter.limit);
    if (name == "vrange")
        return parse_range(value, filter.addresses);
    if (name == "drange")
        return parse_range(value, filter.places);
    if (name == "profiles")
        return parse_profiles(value, filter.profiles);
    if (name == "stripes") {
        const bool valid = parse_range(value, filter.stripes);
        if (value.find("..") == std::string::npos)
            filter.stripes.least = filter.stripes.most;
        return valid;
    }
    const auto number = name == "devid" ? parse_size(value) : Result<uint64_t>(Err::kInvalid);
    if (!number.ok() || *number == 0 || *number > UINT32_MAX)
        return false;
    filter.member = {static_cast<uint32_t>(*number)};
    return true;
}

// "convert=raid6,soft,usage=50". False: said what is wrong.
bool parse_filters(const char* text, ContentArguments& content, argp_state* state)
{
    content.given = true;
    std::string rest = text == nullptr ? "" : text;
    while (!rest.empty()) {
        const size_t end = std::min(rest.find(','), rest.size());
        const std::string word = rest.substr(0, end);
        rest.erase(0, std::min(end + 1, rest.size()));
        const size_t equals = std::min(word.find('='), word.size());
        if (word == "soft" ||
            (equals < word.size() && parse_filter(word.substr(0, equals), word.substr(equals + 1), content)))
            continue;
        argp_error(state, "there is no filter %s, or not with that value; %s", quoted(word).c_str(),
                   kFilterHelp);
        return false;
    }
    if (!content.filter.places.all() && content.filter.member.value == 0) {
        argp_error(state, "drange is of one device: say which with devid=ID");
        return false;
    }
    return true;
}

error_t parse_balance_option(int key, char* argument, argp_state* state)
{
    auto& arguments = *static_cast<BalanceArguments*>(state->input);
    switch (key) {
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
    case 's':
        return parse_filters(argument, arguments.system, state) ? 0 : EINVAL;
    case kKeyFullBalance:
        return 0;
    default:
        return parse_flags(key, state, arguments.common,
                           {{'f', &arguments.force},
                            {kKeyBackground, &arguments.background},
                            {kKeyPlanOnly, &arguments.plan}});
    }
}

bool parse_balance(int argc, char** argv, BalanceArguments& arguments)
{
    return parse_command(
        argc, argv,
        {kBalanceOptions, parse_balance_option, "[VOLUME]",
         "Move what is in block groups of a mounted volume into new ones: of another profile, over all "
         "devices, or fuller.\vFILTERS are words with commas between: convert=PROFILE, which takes only "
         "groups "
         "of another profile, and for data raises metadata to what data tolerates then, unless -m or "
         "--metadata says what it is to be; soft, which it is anyway; usage=PERCENT of a group in use; "
         "profiles=PROFILE|...; devid=ID of a member that holds a part of it; limit=NUMBER of groups, the "
         "emptiest first; stripes=DEVICES that it lies on; vrange=ADDRESSES, as filesystem usage "
         "--layout shows them; drange=OFFSETS on the member, counted from its begin. A range is MOST (of "
         "stripes: "
         "exactly), LEAST..MOST, "
         "LEAST.. or ..MOST. What they let through is decided once, when the balance begins. It goes on "
         "after an unmount or a crash. Ctrl-C ends the waiting only; "
         "cowraid balance cancel ends it.\n\nExit code 3: block groups could not be emptied."},
        &arguments);
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

// What a balance is asked to do. False: said why not.
bool make_request(const BalanceArguments& arguments, json_t* request)
{
    const ContentArguments& data = arguments.data;
    const ContentArguments& metadata = arguments.metadata;
    const bool all = !data.given && !metadata.given && !arguments.system.given;
    const bool convert = !data.profile.empty() || !metadata.profile.empty();
    if (!known_profile(arguments, data.profile) || !known_profile(arguments, metadata.profile))
        return false;
    if (!arguments.system.profile.empty())
        return refuse(arguments, "system trees have the profile that fits metadata: use -mconvert=");
    if (convert && ((data.given && data.profile.empty()) || (metadata.given && metadata.profile.empty())))
        return refuse(arguments, "converting one of data and metadata and only moving the other takes two "
                                 "balances");
    if (arguments.system.given && !metadata.given && !arguments.force)
        return refuse(arguments,
                      "system trees may share their block groups with all metadata, which moves, too: "
                      "use -f, or -m as well");
    const bool filtered = !data.filter.all() || !metadata.filter.all() || !arguments.system.filter.all();
    json_put_text(request, "action", filtered ? "start-filtered" : "start");
    json_put_integer(request, "usage_max", 100);  // daemons of before ask for it
    json_put_text(request, "data_profile", data.profile);
    json_put_text(request, "metadata_profile", metadata.profile);
    json_put_flag(request, "data", all || data.given);
    json_put_flag(request, "metadata", all || metadata.given);
    json_put_flag(request, "system", all || metadata.given || arguments.system.given);
    json_put_flag(request, "convert", convert);
    json_put_flag(request, "force", arguments.force);
    json_put(request, "data_filter", encode_filter(data.filter));
    json_put(request, "metadata_filter", encode_filter(metadata.filter));
    json_put(request, "system_filter",
             encode_filter(arguments.system.given ? arguments.system.filter : metadata.filter));
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

// `head`: what stands in front of the text.
void print(const CommandOptions& options, const BalanceStatus& status, const std::string& head)
{
    if (options.format == OutputFormat::kJson)
        print_json(encode_balance(status).get());
    else
        print_lines(head + balance_text(status, options.sizes));
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
    print(options, *status, balance_end(*status));
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
    if (!status.ok()) {
        // One that is paused may not be resumed for other reasons.
        std::string ignored;
        const auto now = ask_balance_status(*client, ignored);
        const bool may_be_resumed =
            std::string_view(action) == "resume" && now.ok() && now->state == State::kPaused;
        return may_be_resumed ? command_failed(options, status.err(), why)
                              : change_failed(options, status.err(), why);
    }
    const auto mounted = client->mounted_volume();
    if (!mounted.ok())
        return command_failed(options, mounted.err(), why);
    print(options, *status,
          std::string_view(action) == "cancel" ? balance_cancelled(*status)
                                               : balance_head(*status, mounted->mount_point));
    return kExitOk;
}

}  // namespace

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
                       arguments.plan         ? Wait::kPlan
                       : arguments.background ? Wait::kNot
                                              : Wait::kForEnd);
}

int print_plan(const CommandOptions& options, const BalancePlan& plan, const char* work)
{
    if (options.format == OutputFormat::kJson) {
        print_json(encode_plan(plan).get());
        return kExitOk;
    }
    const auto size = [&](uint64_t bytes) {
        return size_text(bytes, options.sizes);
    };
    print_field("Moves:", plan.group_count == 0 ? "nothing"
                                                : size(plan.moved_bytes) + ", of " +
                                                      count_text(plan.group_count, "block group"));
    if (plan.damaged_blocks > 0)
        print_field("Damaged:", count_text(plan.damaged_blocks, "block") +
                                    " in these cannot be read, and their groups stay; cowraid status -v "
                                    "names the files");
    for (const auto& [name, room] : {std::pair("Room for data:", plan.data),
                                     {"Room for metadata:", plan.metadata},
                                     {"The device:", plan.device}})
        if (room.needed != 0)
            print_field(name, "needs " + size(room.needed) + ", has " + size(room.there));
    if (plan.moved_bytes != 0)
        print_field("Takes:", plan.rate == 0 ? std::string("not known: no ") + work +
                                                   " that was long enough to tell has ended since the "
                                                   "volume was mounted"
                                             : duration_text(plan.moved_bytes / plan.rate * 1000) + ", at " +
                                                   size(plan.rate) + "/s as the last " + work);
    print_field("May be lost:", count_text(plan.tolerance_before, "device") + " now, " +
                                    std::to_string(plan.tolerance_meanwhile) + " on the way, " +
                                    std::to_string(plan.tolerance_after) + " afterwards");
    return kExitOk;
}

int run_balance(ControlClient& client, const CommandOptions& options, json_t* request, Wait wait)
{
    std::string why;
    if (wait == Wait::kPlan) {
        // A command of its own: a daemon of before would carry the other one out.
        const auto answer = client.call("balance-plan", request, why);
        const auto plan = answer.ok() ? decode_plan(answer->get()) : Result<BalancePlan>(answer.err());
        return plan.ok() ? print_plan(options, *plan, "balance") : command_failed(options, plan.err(), why);
    }
    const auto started = ask_balance(client, request, why);
    if (!started.ok())
        return command_failed(options, started.err(), why);
    if (wait == Wait::kForEnd && started->member.value != 0)
        print_line(stderr, "cowraid: member %u is being %s; Ctrl-C ends the waiting only",
                   started->member.value, started->shrink_bytes != 0 ? "made smaller" : "emptied");
    if (wait == Wait::kForEnd)
        return wait_for_balance(client, options);
    if (options.format == OutputFormat::kJson)
        print_json(encode_balance(*started).get());
    else
        print_line(stdout, "%s; see cowraid balance status",
                   started->shrink_bytes != 0   ? "the member is being made smaller"
                   : started->member.value != 0 ? "the member is being emptied"
                                                : "balance started");
    return kExitOk;
}

int command_balance_status(int argc, char** argv, CommandOptions options)
{
    return run_action(argc, argv, std::move(options), "Show how far the balance is.", kStatusAction);
}

int command_balance_pause(int argc, char** argv, CommandOptions options)
{
    return run_action(argc, argv, std::move(options),
                      "Let the balance rest; mounts leave it so.\vExit code 2, too: no balance is running.",
                      "pause");
}

int command_balance_resume(int argc, char** argv, CommandOptions options)
{
    return run_action(argc, argv, std::move(options),
                      "Let a paused balance go on.\vExit code 2, too: no balance is paused.", "resume");
}

int command_balance_cancel(int argc, char** argv, CommandOptions options)
{
    return run_action(
        argc, argv, std::move(options),
        "End the balance. What was moved stays where it is, block groups that are marked are still emptied; "
        "new ones are made as it said.\vExit code 2, too: no balance is running or paused.",
        "cancel");
}

}  // namespace cowraid
