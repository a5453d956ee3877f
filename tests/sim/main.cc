// SPDX-License-Identifier: MIT
// simulator: whole filesystems on simulated members, one per seed, against a model. Prints a line per failing
// seed with the command that repeats it, and what happened how often; exit 1 on a violation or when a kind of
// event happened too seldom. Ranges of seeds are shards: processes may run different ones side by side.
#include <argp.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/log.h"
#include "format/profile.h"
#include "tests/sim/run.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

struct Arguments {
    uint64_t first_seed = 1;
    uint64_t last_seed = 250;
    RunOptions run;
};

enum Option { kSeeds = 's', kSeed = 'S', kOperations = 'n', kProfile = 'p', kMutant = 'M', kVerbose = 'v' };

bool parse_range(const char* text, uint64_t& first, uint64_t& last)
{
    char* end = nullptr;
    first = strtoull(text, &end, 10);
    if (end == text || end[0] != '.' || end[1] != '.')
        return false;
    const char* second = end + 2;
    last = strtoull(second, &end, 10);
    return end != second && *end == '\0' && first <= last;
}

error_t parse_option(int key, char* text, argp_state* state)
{
    auto& arguments = *static_cast<Arguments*>(state->input);
    switch (key) {
    case kSeeds:
        if (!parse_range(text, arguments.first_seed, arguments.last_seed))
            argp_error(state, "seeds are FIRST..LAST");
        return 0;
    case kSeed:
        arguments.first_seed = arguments.last_seed = strtoull(text, nullptr, 10);
        return 0;
    case kOperations:
        arguments.run.operation_count = strtoull(text, nullptr, 10);
        return 0;
    case kProfile: {
        const Profile* profile = find_profile(std::string_view(text));
        if (profile == nullptr)
            argp_error(state, "unknown profile %s", text);
        arguments.run.data_profile = profile->id;
        return 0;
    }
    case kMutant:
        arguments.run.mutant = static_cast<CommitMutant>(strtoul(text, nullptr, 10));
        return 0;
    case kVerbose:
        arguments.run.verbose = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

char crash_line[200];

// An assertion or a wild pointer is a violation too; it ends the program, but not without the seed.
void on_crash(int signal)
{
    if (write(STDOUT_FILENO, crash_line, strlen(crash_line)) < 0)
        _exit(1);
    std::signal(signal, SIG_DFL);
    raise(signal);
}

void watch_for_crash(const RunOptions& options)
{
    snprintf(crash_line, sizeof crash_line,
             "\nseed %llu CRASHED\n  repeat: simulator --seed %llu --ops %llu%s%s\n",
             static_cast<unsigned long long>(options.seed), static_cast<unsigned long long>(options.seed),
             static_cast<unsigned long long>(options.operation_count),
             options.data_profile ? " --profile " : "",
             options.data_profile ? find_profile(*options.data_profile)->name : "");
    for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE})
        std::signal(signal, on_crash);
}

// The arguments that repeat one seed.
void print_failure(const RunOptions& options, const RunResult& result)
{
    printf("seed %llu FAILED (%s): %s\n  repeat: simulator --seed %llu --ops %llu",
           static_cast<unsigned long long>(options.seed), result.shape.c_str(), result.violation.c_str(),
           static_cast<unsigned long long>(options.seed),
           static_cast<unsigned long long>(options.operation_count));
    if (options.data_profile)
        printf(" --profile %s", find_profile(*options.data_profile)->name);
    printf("\n  its last steps:\n%s", result.story.c_str());
    fflush(stdout);
}

int run_range(Arguments& arguments)
{
    printf("simulator: cowraid %s, seeds %llu..%llu, %llu operations each\n", COWRAID_VERSION,
           static_cast<unsigned long long>(arguments.first_seed),
           static_cast<unsigned long long>(arguments.last_seed),
           static_cast<unsigned long long>(arguments.run.operation_count));
    fflush(stdout);
    EventCounts events;
    uint64_t failures = 0;
    for (uint64_t seed = arguments.first_seed; seed <= arguments.last_seed; ++seed) {
        arguments.run.seed = seed;
        watch_for_crash(arguments.run);
        const RunResult result = run_seed(arguments.run, events);
        if (result.ok)
            continue;
        ++failures;
        print_failure(arguments.run, result);
    }
    const uint64_t seed_count = arguments.last_seed - arguments.first_seed + 1;
    const size_t rare = events.print(seed_count);
    printf("simulator: seeds %llu..%llu: %llu violations, %zu kinds of event too seldom\n",
           static_cast<unsigned long long>(arguments.first_seed),
           static_cast<unsigned long long>(arguments.last_seed), static_cast<unsigned long long>(failures),
           rare);
    return failures == 0 && rare == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv)
{
    static const argp_option options[] = {
        {"seeds", kSeeds, "FIRST..LAST", 0, "seeds to run (1..250)", 0},
        {"seed", kSeed, "N", 0, "one seed", 0},
        {"ops", kOperations, "N", 0, "operations of a seed (2000)", 0},
        {"profile", kProfile, "NAME", 0, "data profile, instead of one chosen by the seed", 0},
        {"mutant", kMutant, "N", 0, "a wrong commit protocol (fs/volume/commit_mutant.h): must be caught", 0},
        {"verbose", kVerbose, nullptr, 0, "print every step, and the filesystem's messages", 0},
        {nullptr, 0, nullptr, 0, nullptr, 0}};
    Arguments arguments;
    const argp parser{options, parse_option, nullptr, "Simulates whole volumes with faults and crashes.",
                      nullptr, nullptr,      nullptr};
    argp_parse(&parser, argc, argv, 0, nullptr, &arguments);
    if (!arguments.run.verbose)
        log_set_level(LogLevel::kNone);
    return run_range(arguments);
}
