// SPDX-License-Identifier: MIT
// cowraid filesystem usage, df and sync
#include <cctype>
#include <cstdio>

#include "base/print.h"
#include "tools/cowraid/command.h"
#include "tools/cowraid/load_report.h"

namespace cowraid {

namespace {

std::string title_of(uint32_t content)
{
    std::string name = content_name(content);
    bool first = true;
    for (char& c : name) {
        if (first)
            c = static_cast<char>(toupper(c));
        first = c == '+';
    }
    return name;
}

double ratio(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

struct Totals {
    uint64_t device_bytes = 0, missing_bytes = 0, allocated_bytes = 0, used_raw_bytes = 0;
    uint64_t data_raw = 0, data_user = 0, metadata_raw = 0, metadata_user = 0;
};

Totals add_up(const VolumeInfo& info)
{
    Totals out;
    for (const MemberInfo& member : info.members) {
        out.device_bytes += member.size_bytes;
        out.allocated_bytes += member.used_bytes;
        if (member.path.empty() || member.state != MemberState::kPresent)
            out.missing_bytes += member.size_bytes;
    }
    for (const SpaceInfo& space : info.spaces) {
        const double factor = ratio(space.raw_bytes, space.total_bytes);
        out.used_raw_bytes += static_cast<uint64_t>(static_cast<double>(space.used_bytes) * factor);
        const bool data = (space.content & kGroupData) != 0;
        (data ? out.data_raw : out.metadata_raw) += space.raw_bytes;
        (data ? out.data_user : out.metadata_user) += space.total_bytes;
    }
    return out;
}

bool has_multiple_profiles(const VolumeInfo& info)
{
    for (const SpaceInfo& a : info.spaces) {
        for (const SpaceInfo& b : info.spaces) {
            if (a.content == b.content && a.profile != b.profile)
                return true;
        }
    }
    return false;
}

void print_amount(const char* name, const std::string& value)
{
    print_line(stdout, "    %-24s %14s", name, value.c_str());
}

void print_overall(const VolumeInfo& info, SizeStyle sizes)
{
    const Totals totals = add_up(info);
    const auto text = [sizes](uint64_t bytes) {
        return size_text(bytes, sizes);
    };
    const auto number = [](double value) {
        char out[32];
        snprintf(out, sizeof out, "%.2f", value);
        return std::string(out);
    };
    print_line(stdout, "Overall:");
    print_amount("Device size:", text(totals.device_bytes));
    print_amount("Device allocated:", text(totals.allocated_bytes));
    print_amount("Device unallocated:", text(info.unallocated_raw_bytes));
    print_amount("Device missing:", text(totals.missing_bytes));
    print_amount("Used:", text(totals.used_raw_bytes));
    print_amount("Free (estimated):", text(info.available_bytes));
    print_amount("Free (statfs, df):", text(info.available_bytes));
    print_amount("Data ratio:", number(ratio(totals.data_raw, totals.data_user)));
    print_amount("Metadata ratio:", number(ratio(totals.metadata_raw, totals.metadata_user)));
    print_amount("Global reserve:", text(info.reserve_bytes));
    print_amount("Multiple profiles:", has_multiple_profiles(info) ? "yes" : "no");
}

void print_usage(const VolumeReport& report, SizeStyle sizes)
{
    const VolumeInfo& info = report.info;
    print_overall(info, sizes);
    for (const SpaceInfo& space : info.spaces) {
        print_empty_line(stdout);
        print_line(stdout, "%s,%s: Size:%s, Used:%s (%.2f%%), Raw:%s", title_of(space.content).c_str(),
                   profile_title(space.profile), size_text(space.total_bytes, sizes).c_str(),
                   size_text(space.used_bytes, sizes).c_str(),
                   100 * ratio(space.used_bytes, space.total_bytes),
                   size_text(space.raw_bytes, sizes).c_str());
    }
    print_empty_line(stdout);
    print_line(stdout, "Members:");
    for (const MemberInfo& member : info.members) {
        const std::string place = member.path.empty() ? "missing" : member.path;
        const std::string stale =
            member.stale_groups > 0 ? ", stale " + size_text(member.stale_bytes, sizes) : "";
        print_line(stdout, "   %4u  %-24s size %s, allocated %s%s", member.id.value, place.c_str(),
                   size_text(member.size_bytes, sizes).c_str(), size_text(member.used_bytes, sizes).c_str(),
                   stale.c_str());
    }
}

void print_df(const VolumeReport& report, SizeStyle sizes)
{
    for (const SpaceInfo& space : report.info.spaces) {
        print_line(stdout, "%s, %s: total=%s, used=%s", title_of(space.content).c_str(),
                   profile_title(space.profile), size_text(space.total_bytes, sizes).c_str(),
                   size_text(space.used_bytes, sizes).c_str());
    }
    print_line(stdout, "GlobalReserve, single: total=%s, used=%s",
               size_text(report.info.reserve_bytes, sizes).c_str(), size_text(0, sizes).c_str());
}

Result<VolumeReport> load_usage(const std::string& operand, std::string& why)
{
    CW_ASSIGN(const VolumeTarget target, find_target({operand}, why));
    CW_ASSIGN(VolumeReport report, load_report(target, why));
    if (!report.has_usage) {
        why = report.problem;
        return Err::kIo;
    }
    return report;
}

int print_space(const CommandOptions& options, void (*print)(const VolumeReport&, SizeStyle))
{
    if (!has_one_operand(options, "a volume"))
        return kExitUsage;
    std::string why;
    const auto report = load_usage(options.operands.front(), why);
    if (!report.ok())
        return command_failed(options, report.err(), why);
    if (options.format == OutputFormat::kJson)
        print_json(encode_report(*report).get());
    else
        print(*report, options.sizes);
    return kExitOk;
}

}  // namespace

int command_usage(int argc, char** argv, CommandOptions options)
{
    if (!parse_common(argc, argv, "VOLUME", "Show where the space of a volume is.", options))
        return kExitUsage;
    return print_space(options, print_usage);
}

int command_df(int argc, char** argv, CommandOptions options)
{
    if (!parse_common(argc, argv, "VOLUME", "Show the space of a volume per profile.", options))
        return kExitUsage;
    return print_space(options, print_df);
}

int command_sync(int argc, char** argv, CommandOptions options)
{
    if (!parse_common(argc, argv, "MOUNTPOINT", "Commit everything written to a mounted volume.", options) ||
        !has_one_operand(options, "a mounted volume"))
        return kExitUsage;
    std::string why;
    const auto target = find_target(options.operands, why);
    if (!target.ok())
        return command_failed(options, target.err(), why);
    auto client = connect_target(*target, why);
    if (!client.ok())
        return command_failed(options, client.err(), why);
    const auto result = client->call("sync", nullptr, why);
    if (!result.ok())
        return command_failed(options, result.err(), why);
    if (options.format == OutputFormat::kJson) {
        Json out = json_with_schema("filesystem-sync");
        json_put_text(out.get(), "uuid", uuid_text(target->uuid));
        print_json(out.get());
    }
    return kExitOk;
}

}  // namespace cowraid
