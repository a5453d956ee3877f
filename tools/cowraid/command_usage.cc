// SPDX-License-Identifier: MIT
// cowraid filesystem usage, df and sync
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/print.h"
#include "tools/cowraid/layout_text.h"
#include "tools/cowraid/mounted_command.h"

namespace cowraid {

namespace {

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
    if (info.compression_counted && info.compressed_bytes > 0)
        print_line(stdout, "    %-24s %14s  (of files, in %s: ratio %s)",
                   "Compressed:", text(info.compressed_file_bytes).c_str(),
                   text(info.compressed_bytes).c_str(),
                   number(ratio(info.compressed_file_bytes, info.compressed_bytes)).c_str());
    print_amount("Global reserve:", text(info.reserve_bytes));
    print_amount("Multiple profiles:", has_multiple_profiles(info) ? "yes" : "no");
}

void print_member_sizes(const VolumeInfo& info, SizeStyle sizes)
{
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
        print_line(stdout, "%s: total=%s, used=%s", space_title(space.content, space.profile, ", ").c_str(),
                   size_text(space.total_bytes, sizes).c_str(), size_text(space.used_bytes, sizes).c_str());
    }
    print_line(stdout, "GlobalReserve, single: total=%s, used=%s",
               size_text(report.info.reserve_bytes, sizes).c_str(), size_text(0, sizes).c_str());
}

Result<VolumeReport> load_usage(const VolumeTarget& target, std::string& why)
{
    CW_ASSIGN(VolumeReport report, load_report(target, why));
    if (!report.has_usage) {
        why = report.problem;
        return Err::kIo;
    }
    return report;
}

constexpr int kKeyLayout = 256;

enum class UsageStyle : uint8_t { kList, kTable, kLayout };

struct UsageArguments {
    CommandOptions common;
    UsageStyle style = UsageStyle::kList;
};

constexpr argp_option kUsageOptions[] = {
    {nullptr, 'T', nullptr, 0, "as a table: what each member holds of each profile", 0},
    {"layout", kKeyLayout, nullptr, 0, "draw the block groups over the members, and how full each is", 0},
    {},
};

error_t parse_usage_option(int key, char*, argp_state* state)
{
    auto& arguments = *static_cast<UsageArguments*>(state->input);
    switch (key) {
    case 'T':
        arguments.style = UsageStyle::kTable;
        return 0;
    case kKeyLayout:
        arguments.style = UsageStyle::kLayout;
        return 0;
    default:
        return parse_flags(key, state, arguments.common);
    }
}

bool parse_usage(int argc, char** argv, UsageArguments& arguments)
{
    return parse_command(
        argc, argv, {kUsageOptions, parse_usage_option, "[VOLUME]", "Show where the space of a volume is."},
        &arguments);
}

// Characters of a line; so many go into a mail, too.
size_t line_width()
{
    constexpr size_t kUsual = 100, kIndent = 2;
    winsize size{};
    const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 2 * kIndent;
    return (known ? size.ws_col : kUsual) - kIndent;
}

int print_usage(const UsageArguments& arguments)
{
    const CommandOptions& options = arguments.common;
    if (!one_volume(options))
        return kExitUsage;
    std::string why;
    const auto target = target_of(options.operands, why);
    if (!target.ok())
        return command_failed(options, target.err(), why);
    const auto report = load_usage(*target, why);
    if (!report.ok())
        return command_failed(options, report.err(), why);
    const bool is_json = options.format == OutputFormat::kJson;
    if (is_json && arguments.style == UsageStyle::kList) {
        print_json(encode_report(*report).get());
        return kExitOk;
    }
    const auto layout = load_layout(*target, Occupancy::kGroups, why);
    if (!layout.ok())
        return command_failed(options, layout.err(), why);
    if (is_json) {
        Json out = encode_report(*report);
        json_put(out.get(), "layout", encode_layout(*layout));
        print_json(out.get());
        return kExitOk;
    }
    const std::vector<std::string> lines =
        arguments.style == UsageStyle::kList    ? draw_usage_list(report->info, *layout, options.sizes)
        : arguments.style == UsageStyle::kTable ? draw_usage_table(report->info, *layout, options.sizes)
                                                : draw_layout(*layout, options.sizes, line_width());
    if (arguments.style != UsageStyle::kLayout) {
        print_overall(report->info, options.sizes);
        print_empty_line(stdout);
    }
    for (const std::string& line : lines)
        print_line(stdout, "%s", line.c_str());
    if (arguments.style == UsageStyle::kList)
        print_member_sizes(report->info, options.sizes);
    return kExitOk;
}

}  // namespace

int command_usage(int argc, char** argv, CommandOptions options)
{
    UsageArguments arguments{.common = std::move(options)};
    if (!parse_usage(argc, argv, arguments))
        return kExitUsage;
    return print_usage(arguments);
}

int command_df(int argc, char** argv, CommandOptions options)
{
    if (!parse_common(argc, argv, "[VOLUME]", "Show the space of a volume per profile.", options))
        return kExitUsage;
    if (!one_volume(options))
        return kExitUsage;
    std::string why;
    const auto target = target_of(options.operands, why);
    if (!target.ok())
        return command_failed(options, target.err(), why);
    const auto report = load_usage(*target, why);
    if (!report.ok())
        return command_failed(options, report.err(), why);
    if (options.format == OutputFormat::kJson)
        print_json(encode_report(*report).get());
    else
        print_df(*report, options.sizes);
    return kExitOk;
}

namespace {

// What was stored through shared mappings comes to the daemon first. False: it had no room for all of it.
bool write_back_mappings(const VolumeTarget& target)
{
    const auto mounted = find_mounted_volume(target.uuid);
    const UniqueFd root(mounted ? open(mounted->mount_point.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                                : -1);
    return !root.valid() || syncfs(root.get()) == 0;
}

}  // namespace

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
    const bool written_back = write_back_mappings(*target);
    const int error = errno;
    const auto result = client->call("sync", nullptr, why);
    if (!result.ok())
        return command_failed(options, result.err(), why);
    if (!written_back)
        return command_failed(options, Err::kIo,
                              std::string("what was stored through mappings could not be written: ") +
                                  strerror(error) + "; see cowraid status");
    if (options.format == OutputFormat::kJson) {
        Json out = json_with_schema("filesystem-sync");
        json_put_text(out.get(), "uuid", uuid_text(target->uuid));
        print_json(out.get());
    }
    return kExitOk;
}

}  // namespace cowraid
