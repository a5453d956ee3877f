// SPDX-License-Identifier: MIT
// cowraid filesystem resize
#include <algorithm>

#include "base/print.h"
#include "base/text.h"
#include "tools/cowraid/mounted_command.h"

namespace cowraid {

namespace {

struct ResizeArguments {
    CommandOptions common;
    bool plan = false;
    bool background = false;
};

constexpr argp_option kResizeOptions[] = {
    {"background", kKeyBackground, nullptr, 0, "do not wait until a member is smaller", 0},
    {"bg", kKeyBackground, nullptr, OPTION_ALIAS, nullptr, 0},
    {"plan", kKeyPlanOnly, nullptr, 0, kPlanHelp, 0},
    {},
};

error_t parse_resize_option(int key, char*, argp_state* state)
{
    auto& arguments = *static_cast<ResizeArguments*>(state->input);
    return parse_flags(key, state, arguments.common,
                       {{kKeyBackground, &arguments.background}, {kKeyPlanOnly, &arguments.plan}});
}

// What the user asks of which member.
struct WantedSize {
    std::string member;  // empty: of all in service
    bool to_max = false;
    char sign = 0;  // '+', '-', or 0: it is the size
    uint64_t bytes = 0;
};

Result<WantedSize> parse_wanted(const std::string& text)
{
    WantedSize wanted;
    const size_t colon = text.find_last_of(':');
    wanted.member = colon == std::string::npos ? "" : text.substr(0, colon);
    std::string size = colon == std::string::npos ? text : text.substr(colon + 1);
    wanted.to_max = size == "max";
    if (wanted.to_max)
        return wanted;
    if (!size.empty() && (size.front() == '+' || size.front() == '-')) {
        wanted.sign = size.front();
        size.erase(0, 1);
    }
    CW_ASSIGN(wanted.bytes, parse_size(size));
    return wanted.member.empty() || wanted.bytes == 0 ? Result<WantedSize>(Err::kInvalid)
                                                      : Result<WantedSize>(wanted);
}

// Whole blocks; 0 where nothing would be left, and as much as there can be where it would be more.
uint64_t size_wanted(const WantedSize& wanted, uint64_t now)
{
    const uint64_t bytes = wanted.sign == 0     ? wanted.bytes
                           : wanted.sign == '-' ? now - std::min(now, wanted.bytes)
                                                : now + std::min(wanted.bytes, UINT64_MAX - now);
    return bytes / kBlockBytes * kBlockBytes;
}

// The one that was named, or all in service.
Result<std::vector<MemberInfo>> members_to_resize(ControlClient& client, const std::string& name,
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

int shrink(ControlClient& client, const ResizeArguments& arguments, const MemberInfo& member,
           uint64_t size_bytes)
{
    const CommandOptions& options = arguments.common;
    const Json request = json_make_object();
    json_put_text(request.get(), "action", "shrink");
    json_put_integer(request.get(), "member", member.id.value);
    json_put_integer(request.get(), "size_bytes", size_bytes);
    const Wait wait = arguments.plan ? Wait::kPlan : arguments.background ? Wait::kNot : Wait::kForEnd;
    const int code = run_balance(client, options, request.get(), wait);
    if (wait != Wait::kForEnd || code != kExitOk)
        return code;
    std::string why;
    const auto then = find_member(client, std::to_string(member.id.value), why);
    if (then.ok() && then->size_bytes == size_bytes)
        return kExitOk;
    return command_failed(options, then.ok() ? Err::kBusy : then.err(),
                          then.ok() ? "the member is not smaller; see the system log" : why);
}

// kInvalid: there is no more than it has. Text is printed, JSON is returned.
Result<Json> grow(ControlClient& client, const ResizeArguments& arguments, const MemberInfo& member,
                  uint64_t size_bytes, std::string& why)
{
    const CommandOptions& options = arguments.common;
    const Json request = json_make_object();
    json_put_integer(request.get(), "member", member.id.value);
    json_put_integer(request.get(), "size_bytes", size_bytes);
    // An older daemon knows of no size.
    CW_ASSIGN(Json grown, client.call(arguments.plan    ? "member-grow-plan"
                                      : size_bytes != 0 ? "member-grow-to"
                                                        : "member-grow",
                                      request.get(), why));
    const uint64_t bytes = json_get_integer(grown.get(), "size_bytes");
    if (arguments.plan)
        return growth_of(options, member.path, bytes);
    if (options.format == OutputFormat::kText)
        print_line(stdout, "member %u (%s) uses %s now", member.id.value, member.path.c_str(),
                   size_text(bytes, options.sizes).c_str());
    return grown;
}

bool parse(int argc, char** argv, ResizeArguments& arguments)
{
    return parse_command(
        argc, argv,
        {kResizeOptions, parse_resize_option, "[MEMBER:]max|MEMBER:[+|-]SIZE [VOLUME]",
         "Use all of a device that has grown, or of all that have; or use so much of one, or so much "
         "more or less. MEMBER is an id or a device. What lies beyond a smaller size is moved first; "
         "cowraid balance status, pause, resume and cancel are for this, too. The device itself stays "
         "as it is, and may be made smaller afterwards.\vExit code 3: block groups could not be emptied, "
         "and the member stays as it is."},
        &arguments);
}

}  // namespace

int command_resize(int argc, char** argv, CommandOptions common)
{
    ResizeArguments arguments{.common = std::move(common)};
    if (!parse(argc, argv, arguments))
        return kExitUsage;
    CommandOptions& options = arguments.common;
    const auto wanted = parse_wanted(options.operands.empty() ? "" : options.operands.front());
    if (!wanted.ok() || options.operands.size() > 2) {
        print_error(kProgram, options.format, Err::kInvalid,
                    "name max, MEMBER:max or MEMBER:[+|-]SIZE, and the volume");
        return kExitUsage;
    }
    options.operands.erase(options.operands.begin());
    std::string why;
    auto client = connect_mounted(options, why);
    if (!client.ok())
        return command_failed(options, client.err(), why);
    const auto members = members_to_resize(*client, wanted->member, why);
    if (!members.ok())
        return command_failed(options, members.err(), why);
    std::vector<Json> results;
    for (const MemberInfo& member : *members) {
        const uint64_t bytes = wanted->to_max ? 0 : size_wanted(*wanted, member.size_bytes);
        if (!wanted->to_max && bytes < member.size_bytes)
            return shrink(*client, arguments, member, bytes);
        Result<Json> grown = grow(*client, arguments, member, bytes, why);
        const bool skipped = grown.err() == Err::kInvalid || grown.err() == Err::kBusy;
        if (!grown.ok() && (!wanted->member.empty() || !skipped))
            return command_failed(options, grown.err(), why);
        if (grown.ok())
            results.push_back(grown.take());
    }
    if (results.empty())
        return command_failed(options, Err::kInvalid, why.empty() ? "no member is in service" : why);
    if (options.format == OutputFormat::kJson)
        print_results(results);
    return kExitOk;
}

}  // namespace cowraid
