// SPDX-License-Identifier: MIT
// cowraid device stats [-c] [-z]
#include <algorithm>
#include <cstdio>

#include "base/print.h"
#include "format/to_text.h"
#include "tools/cowraid/mounted_command.h"

namespace cowraid {

namespace {

struct StatsOptions {
    CommandOptions common;
    bool check = false;
    bool reset = false;
};

constexpr argp_option kStatsOptions[] = {
    {"check", 'c', nullptr, 0, "exit with 64 when an error counter is not zero", 0},
    {"reset", 'z', nullptr, 0, "print, then set to zero; needs a mounted volume", 0},
    {},
};

error_t parse_stats_option(int key, char*, argp_state* state)
{
    auto& options = *static_cast<StatsOptions*>(state->input);
    return parse_flags(key, state, options.common, {{'c', &options.check}, {'z', &options.reset}});
}

bool parse(int argc, char** argv, StatsOptions& options)
{
    return parse_command(argc, argv,
                         {kStatsOptions, parse_stats_option, "[VOLUME|MEMBER]",
                          "Show the error counters of the members of a volume, or of one member. slow_ios: "
                          "requests since the mount that took longer than slow_io= allows."},
                         &options);
}

// Beside the counters: it is no error, and is forgotten at the unmount.
constexpr const char* kSlowIos = "slow_ios";

// A repaired block was counted as an error of its own kind before.
bool has_errors(const MemberInfo& member)
{
    for (size_t i = 0; i < member.counters.size(); ++i) {
        if (member.counters[i] != 0 && i != static_cast<size_t>(MemberCounter::kRepaired))
            return true;
    }
    return false;
}

void print_stats(const std::vector<MemberInfo>& members)
{
    for (const MemberInfo& member : members) {
        const std::string name =
            member.path.empty() ? "devid:" + std::to_string(member.id.value) : member.path;
        for (size_t i = 0; i < member.counters.size(); ++i)
            print_line(stdout, "[%s].%-17s%llu", name.c_str(), counter_name(i),
                       static_cast<unsigned long long>(member.counters[i]));
        print_line(stdout, "[%s].%-17s%llu", name.c_str(), kSlowIos,
                   static_cast<unsigned long long>(member.slow_ios));
    }
}

void print_stats_json(const VolumeInfo& info, const std::vector<MemberInfo>& members)
{
    Json out = json_with_schema("device-stats");
    json_put_text(out.get(), "uuid", uuid_text(info.uuid));
    Json list = json_make_array();
    for (const MemberInfo& member : members) {
        Json line = json_make_object();
        json_put_integer(line.get(), "devid", member.id.value);
        if (member.path.empty())
            json_put(line.get(), "device", Json(json_null()));
        else
            json_put_text(line.get(), "device", member.path);
        json_put_text(line.get(), "state", member_state_name(member.state));
        json_put_integer(line.get(), "stale_groups", member.stale_groups);
        json_put_integer(line.get(), "stale_bytes", member.stale_bytes);
        for (size_t i = 0; i < member.counters.size(); ++i)
            json_put_integer(line.get(), counter_name(i), member.counters[i]);
        json_put_integer(line.get(), kSlowIos, member.slow_ios);
        json_array_append_new(list.get(), line.release());
    }
    json_put(out.get(), "device-stats", std::move(list));
    print_json(out.get());
}

// The member that was named, by the id its own superblock tells; 0 when a volume was named. A device that
// answered the first look may fail the second one: then it is none, and stands for no volume.
Result<MemberId> named_member(const VolumeTarget& target, std::string& why)
{
    if (target.named_device.empty())
        return MemberId{};
    for (const FoundMember& found : target.members.members)
        if (found.named && found.superblock.member_id.value != 0)
            return found.superblock.member_id;
    why = target.named_device + " was read once and cannot be read again; check the device";
    return Err::kNotFound;
}

// With `reset` as it was before that.
Result<VolumeReport> load(const VolumeTarget& target, MemberId member, bool reset, std::string& why)
{
    if (!reset)
        return load_report(target, why);
    CW_ASSIGN(auto client, connect_target(target, why));
    const Json request = json_make_object();
    json_put_integer(request.get(), "member", member.value);
    // Daemons of before know of no single members.
    const char* const command = member.value == 0 ? "stats-reset" : "member-stats-reset";
    CW_ASSIGN(const Json before, client.call(command, request.get(), why));
    return decode_report(before.get());
}

}  // namespace

int command_stats(int argc, char** argv, CommandOptions common)
{
    StatsOptions options{.common = std::move(common)};
    if (!parse(argc, argv, options) || !one_volume(options.common))
        return kExitUsage;
    std::string why;
    const auto target = target_of(options.common.operands, why);
    if (!target.ok())
        return command_failed(options.common, target.err(), why);
    const auto member = named_member(*target, why);
    const auto report = member.ok() ? load(*target, *member, options.reset, why) : member.err();
    if (!report.ok())
        return command_failed(options.common, report.err(), why);
    std::vector<MemberInfo> members = report->info.members;
    if (member->value != 0)
        std::erase_if(members, [&](const MemberInfo& one) { return one.id != *member; });
    if (options.common.format == OutputFormat::kJson)
        print_stats_json(report->info, members);
    else
        print_stats(members);
    const bool errors = std::any_of(members.begin(), members.end(), has_errors);
    return options.check && errors ? kExitCounters : kExitOk;
}

}  // namespace cowraid
