// SPDX-License-Identifier: MIT
// cowraid check
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <tuple>

#include "base/clock.h"
#include "base/out_of_memory.h"
#include "base/print.h"
#include "device/lineage.h"
#include "fs/check/check.h"
#include "tools/common/member_search.h"
#include "tools/cowraid/check_verdict.h"
#include "tools/cowraid/command.h"
#include "tools/cowraid/load_report.h"
#include "tools/cowraid/mounted_command.h"

namespace cowraid {

namespace {

constexpr size_t kFindingLinesMax = 1000;
constexpr size_t kMemberLinesMax = 10;  // of one kind
constexpr int kTreesKey = 2000;
constexpr int kAllKey = 2001;
constexpr int kMemoryKey = 2002;
// Below this not even the node cache and the rings have room.
constexpr uint64_t kMemoryBytesMin = 256 * kMiB;

struct CheckArguments {
    CommandOptions common;
    bool force = false;
    bool all = false;
    CheckOptions check;
    uint64_t memory_bytes = std::max(kMemoryBytesMin, usual_memory_bytes());
};

// Without the first one those of `inspect verify`.
constexpr argp_option kCheckOptions[] = {
    {"trees-only", kTreesKey, nullptr, 0, "do not read file data and parity", 0},
    {"force", 'f', nullptr, 0, "check a mounted volume too; it may change meanwhile", 0},
    {"all", kAllKey, nullptr, 0, "list every finding", 0},
    {"memory", kMemoryKey, "SIZE", 0, "memory to use at most (default: three quarters of the machine's)", 0},
    {},
};

error_t parse_check_option(int key, char* argument, argp_state* state)
{
    auto& arguments = *static_cast<CheckArguments*>(state->input);
    switch (key) {
    case kTreesKey:
        arguments.check.verify_data = false;
        return 0;
    case kMemoryKey: {
        const auto bytes = parse_size(argument);
        if (!bytes.ok() || *bytes < kMemoryBytesMin)
            argp_error(state, "'%s' is no size of 256M or more", argument);
        arguments.memory_bytes = bytes.ok() ? *bytes : 0;
        return 0;
    }
    default:
        return parse_flags(key, state, arguments.common,
                           {{'f', &arguments.force}, {kAllKey, &arguments.all}});
    }
}

void print_finding(const CheckFinding& finding)
{
    std::string place;
    if (finding.member != 0)
        place += ", member " + std::to_string(finding.member);
    if (finding.address != 0)
        place += ", address " + std::to_string(finding.address);
    print_line(stdout, "%s: %s%s (%s)", finding.kind.c_str(), finding.text.c_str(), place.c_str(),
               finding.repairable ? "repairable" : "not repairable");
}

// Of bad blocks of one member a few lines, and how many more there are.
void print_findings(const CheckReport& report, const CheckArguments& arguments)
{
    std::map<std::tuple<std::string, uint32_t, bool>, size_t> counts;
    size_t lines = 0, left_out = 0;
    for (const CheckFinding& finding : report.findings) {
        const size_t count = ++counts[{finding.kind, finding.member, finding.repairable}];
        const bool listed = lines < kFindingLinesMax && (finding.member == 0 || count <= kMemberLinesMax);
        lines += listed;
        left_out += !listed && !arguments.all;
        if (listed || arguments.all)
            print_finding(finding);
    }
    if (left_out == 0)
        return;
    for (const auto& [key, count] : counts)
        if (const auto& [kind, member, repairable] = key; member != 0 && count > kMemberLinesMax)
            print_line(stdout, "%s: member %u: %zu lines more (%s)", kind.c_str(), member,
                       count - kMemberLinesMax, repairable ? "repairable" : "not repairable");
    print_line(stdout, "%zu lines are left out; --all lists them", left_out);
}

// A device that was replaced says what the one says that took its place.
std::string verdict_of(const VolumeMembers& volume, const CheckReport& report, const CheckOptions& options)
{
    if (report.clean() && !options.verify_data)
        return "the trees are clean; file data and parity were not read";
    std::map<uint32_t, const FoundMember*> newest;
    for (const FoundMember& member : volume.members) {
        const FoundMember*& at = newest[member.superblock.member_id.value];
        if (at == nullptr || newer_commit(member.superblock, at->superblock))
            at = &member;
    }
    std::map<uint32_t, std::string> paths;
    for (const auto& [id, member] : newest)
        paths.emplace(id, member->path);
    return check_verdict(report, paths, find_mounted_volume(volume.uuid).has_value());
}

void print_report(const VolumeMembers& volume, const CheckReport& report, const CheckArguments& arguments)
{
    print_findings(report, arguments);
    print_line(stdout, "UUID:                %s", uuid_text(volume.uuid).c_str());
    print_line(stdout, "Inodes:              %" PRIu64 " (%" PRIu64 " files, %" PRIu64 " directories)",
               report.inodes, report.files, report.directories);
    print_line(stdout, "Extents:             %" PRIu64, report.extents);
    print_line(stdout, "Tree nodes:          %" PRIu64, report.nodes);
    print_line(stdout, "Data blocks:         %" PRIu64, report.data_blocks);
    print_line(stdout, "Checksums verified:  %" PRIu64, report.checksums_verified);
    print_line(stdout, "Parity rows:         %" PRIu64, report.parity_rows_verified);
    if (report.stale_columns > 0)
        print_line(stdout, "Stale:               %s of block groups missed writes; old in them: %s",
                   count_text(report.stale_columns, "column").c_str(),
                   count_text(report.stale_blocks, "block").c_str());
    if (report.recovered_rows > 0)
        print_line(stdout, "Write-intent log:    a mount recovers %s",
                   count_text(report.recovered_rows, "row").c_str());
    std::map<std::string, size_t> kinds;
    for (const CheckFinding& finding : report.findings)
        ++kinds[finding.kind];
    std::vector<std::string> counts;
    for (const auto& [kind, count] : kinds)
        counts.push_back(count_text(count, kind + " finding"));
    if (!counts.empty())
        print_line(stdout, "Found:               %s", join_words(counts).c_str());
    print_line(stdout, "Result:              %s", verdict_of(volume, report, arguments.check).c_str());
}

void print_report_json(const VolumeMembers& volume, const CheckReport& report, const CheckOptions& options)
{
    Json out = json_with_schema("check");
    json_put_text(out.get(), "uuid", uuid_text(volume.uuid));
    json_put_flag(out.get(), "clean", report.clean());
    json_put_text(out.get(), "result", verdict_of(volume, report, options));
    json_put_integer(out.get(), "inodes", report.inodes);
    json_put_integer(out.get(), "directories", report.directories);
    json_put_integer(out.get(), "files", report.files);
    json_put_integer(out.get(), "extents", report.extents);
    json_put_integer(out.get(), "nodes", report.nodes);
    json_put_integer(out.get(), "data_blocks", report.data_blocks);
    json_put_integer(out.get(), "checksums_verified", report.checksums_verified);
    json_put_integer(out.get(), "parity_rows_verified", report.parity_rows_verified);
    json_put_integer(out.get(), "stale_columns", report.stale_columns);
    json_put_integer(out.get(), "stale_blocks", report.stale_blocks);
    json_put_integer(out.get(), "recovered_rows", report.recovered_rows);
    Json findings = json_make_array();
    for (const CheckFinding& finding : report.findings) {
        Json line = json_make_object();
        json_put_text(line.get(), "kind", finding.kind);
        json_put_text(line.get(), "text", finding.text);
        json_put_integer(line.get(), "address", finding.address);
        json_put_integer(line.get(), "member", finding.member);
        json_put_integer(line.get(), "blocks", finding.block_count);
        json_put_flag(line.get(), "repairable", finding.repairable);
        json_array_append_new(findings.get(), line.release());
    }
    json_put(out.get(), "findings", std::move(findings));
    print_json(out.get());
}

// What keeps a mount from opening the volume although its trees are fine: a log that cannot be replayed.
// Changes nothing, and tells nothing of a volume that is in use.
Status try_to_open(const VolumeMembers& volume, CheckReport& report, std::string& why)
{
    CW_ASSIGN(const VolumeReport opened, load_offline_report(volume, why));
    if (!opened.has_usage)
        report.findings.push_back({.kind = "mount", .text = opened.problem, .repairable = false});
    return {};
}

// On a terminal.
class ShownProgress final : public CheckProgress {
public:
    explicit ShownProgress(const CommandOptions& options) : options_(options), begun_ns_(monotonic_ns()) { }

    void at(uint64_t done_bytes, uint64_t total_bytes) override
    {
        constexpr uint64_t kBetween = uint64_t{kLookMicroseconds} * 1000;
        const uint64_t now = monotonic_ns();
        if (now < shown_ns_ + kBetween)
            return;
        shown_ns_ = now;
        show_progress(options_, progress_of(done_bytes, total_bytes, (now - begun_ns_) / 1'000'000));
    }
    void end() { show_progress(options_, {}); }

private:
    const CommandOptions& options_;
    const uint64_t begun_ns_;
    uint64_t shown_ns_ = 0;
};

Result<CheckReport> check(const CheckArguments& arguments, VolumeMembers& volume, std::string& why)
{
    CW_ASSIGN(volume, find_unmounted(arguments.common.operands,
                                     arguments.force ? Mounted::kAllowed : Mounted::kRefused,
                                     ", or use --force to look anyway", why));
    const MemberAccess access = arguments.force ? MemberAccess::kLook : MemberAccess::kReadOnly;
    std::vector<std::string> warnings;
    CW_ASSIGN(auto devices, open_member_devices(volume, access, warnings, why));
    for (const std::string& warning : warnings)
        print_warning(kProgram, warning);
    CW_ASSIGN(Assembly assembly, assemble(std::move(devices), why, lenient_assembly(volume)));
    for (const std::string& note : assembly.notes)
        print_warning(kProgram, note);
    if (!limit_memory(arguments.memory_bytes, "--memory allows more")) {
        why = "the memory of this process cannot be limited; check without --memory";
        return Err::kInvalid;
    }
    CheckReport report;
    CheckOptions options = arguments.check;
    ShownProgress progress(arguments.common);
    options.progress = &progress;
    CW_TRY(check_volume(std::move(assembly), options, report, why));
    progress.end();
    // Damage that cannot be repaired says by itself why there is no mount.
    const bool may_mount =
        std::all_of(report.findings.begin(), report.findings.end(), [](const CheckFinding& finding) {
            return finding.repairable || finding.kind == "member";
        });
    if (!arguments.force && may_mount)
        CW_TRY(try_to_open(volume, report, why));
    return report;
}

int run_check(int argc, char** argv, const argp_option* options, const char* doc, CheckArguments arguments)
{
    if (!parse_command(argc, argv, {options, parse_check_option, "MEMBER...|LABEL|UUID", doc}, &arguments))
        return kExitUsage;
    if (arguments.common.operands.empty()) {
        print_error(kProgram, arguments.common.format, Err::kInvalid, "name a member, a label or a uuid");
        return kExitUsage;
    }
    VolumeMembers volume;
    std::string why;
    const auto report = check(arguments, volume, why);
    if (!report.ok())
        return command_failed(arguments.common, report.err(), why);
    if (arguments.common.format == OutputFormat::kJson)
        print_report_json(volume, *report, arguments.check);
    else
        print_report(volume, *report, arguments);
    return report->clean() ? kExitOk : kExitFindings;
}

}  // namespace

int command_check(int argc, char** argv, CommandOptions common)
{
    return run_check(argc, argv, kCheckOptions,
                     "Read everything in an unmounted volume and say what is wrong. Changes nothing.\v"
                     "Exit code 3: something was found; 0: it is clean.",
                     {.common = std::move(common)});
}

int command_inspect_verify(int argc, char** argv, CommandOptions common)
{
    CheckArguments arguments{.common = std::move(common)};
    arguments.check.verify_data = false;
    return run_check(argc, argv, kCheckOptions + 1,
                     "Read the trees of an unmounted volume and say what is wrong. File data and parity are "
                     "not read: cowraid check reads them, too. Changes nothing.\v"
                     "Exit code 3: something was found; 0: the trees are clean.",
                     std::move(arguments));
}

}  // namespace cowraid
