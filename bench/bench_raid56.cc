// SPDX-License-Identifier: MIT
// cowraid bench raid56
#include <algorithm>

#include "bench/bench_report.h"

namespace cowraid {

namespace {

constexpr int kFirstKey = 3000;  // of bench_options(), in order

struct BenchArguments {
    BenchOptions options;
    std::string why;  // not empty: an argument was wrong
};

error_t parse_bench_option(int key, char* argument, argp_state* state)
{
    auto& arguments = *static_cast<BenchArguments*>(state->input);
    if (key == ARGP_KEY_INIT) {
        state->child_inputs[0] = &arguments.options.common;
        return 0;
    }
    const auto options = bench_options();
    if (key < kFirstKey || static_cast<size_t>(key - kFirstKey) >= options.size())
        return ARGP_ERR_UNKNOWN;
    const BenchOption& option = options[static_cast<size_t>(key - kFirstKey)];
    const char* const value = argument == nullptr ? "" : argument;
    std::string why;
    if (!set_bench_option(arguments.options, option.name, value, why).ok() && arguments.why.empty())
        arguments.why = why;
    return 0;
}

bool parse(int argc, char** argv, BenchArguments& arguments)
{
    std::vector<argp_option> table;
    for (const BenchOption& option : bench_options())
        table.push_back(
            {option.name, kFirstKey + static_cast<int>(table.size()), option.argument, 0, option.help, 0});
    table.push_back({});
    if (!parse_command(
            argc, argv,
            {table.data(), parse_bench_option, "[MEMBER...]",
             "Drive the RAID5/6 array without a filesystem and print throughput and member requests per "
             "operation. Members are simulated in memory, or are the devices and files named, whose content "
             "is destroyed.\v"
             "Every row is written once, then the pattern runs: writes in place, with the write-intent log "
             "in the time measured. At the end everything is read back and verified. Exit code 1, too, when "
             "blocks were bad."},
            &arguments))
        return false;
    if (arguments.why.empty())
        check_bench_options(arguments.options, arguments.why).ignore();  // it says so in `why`
    return true;
}

// One series, or the two of a comparison. kInvalid with `why` for a value that is none.
Result<std::vector<BenchSeries>> plan_series(const BenchOptions& options, std::string& why)
{
    std::vector<BenchSeries> all;
    if (options.compare_name.empty()) {
        all.push_back({"", options, {}});
        return all;
    }
    for (const std::string& value : options.compare_values) {
        BenchSeries series{options.compare_name + "=" + value, options, {}};
        CW_TRY(set_bench_option(series.options, options.compare_name, value, why));
        CW_TRY(check_bench_options(series.options, why));
        all.push_back(std::move(series));
    }
    return all;
}

Status run_all(std::vector<BenchSeries>& all, std::string& why)
{
    const uint32_t rounds = all.size() == 1 ? 1 : all.front().options.rounds;
    for (uint32_t round = 0; round < rounds; ++round) {
        for (BenchSeries& series : all) {
            CW_ASSIGN(BenchResult result, run_bench(series.options, why));
            series.rounds.push_back(std::move(result));
        }
    }
    return {};
}

uint64_t count_bad(const std::vector<BenchSeries>& all)
{
    uint64_t bad = 0;
    for (const BenchSeries& series : all)
        for (const BenchResult& result : series.rounds)
            bad += result.bad_blocks;
    return bad;
}

void print_all(const CommandOptions& common, const std::vector<BenchSeries>& all)
{
    if (common.format == OutputFormat::kJson) {
        print_json(encode_bench(all).get());
        return;
    }
    for (const BenchSeries& series : all)
        print_series(series);
    if (all.size() == 2)
        print_ratio(all[0], all[1]);
}

}  // namespace

int command_bench_raid56(int argc, char** argv, CommandOptions options)
{
    BenchArguments arguments;
    arguments.options.common = std::move(options);
    if (!parse(argc, argv, arguments))
        return kExitUsage;
    const BenchOptions& chosen = arguments.options;
    std::string why = arguments.why;
    auto all = why.empty() ? plan_series(chosen, why) : Err::kInvalid;
    if (!all.ok()) {
        print_error(kProgram, chosen.common.format, all.err(), why);
        return kExitUsage;
    }
    const Status status = run_all(*all, why);
    if (!status.ok())
        return command_failed(chosen.common, status.err(), why);
    print_all(chosen.common, *all);
    return count_bad(*all) == 0 ? kExitOk : kExitFailed;
}

}  // namespace cowraid
