// SPDX-License-Identifier: MIT
// crash-replay: explores crash states of recorded commits; or, with --mutants, shows that every wrong
// protocol is caught (builds with -Dmutants=true). Prints what it covered; exit 1 on a violation (or a mutant
// that survived).
#include <argp.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/log.h"
#include "format/profile.h"
#include "fs/volume/commit_mutant.h"
#include "tests/crash/crash_replay.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

struct Arguments {
    CrashOptions crash;
    bool mutants = false;
    uint32_t only_mutant = 0;  // of them; 0: all
};

enum Option {
    kProfile = 'p',
    kMembers = 'm',
    kMetadata = 'd',
    kSeed = 's',
    kStates = 'n',
    kShard = 'x',
    kMutants = 'M',
    kCompress = 'Z',
    kJoin = 'j',
    kClean = 'c',
    kReturningMembers = 'r',
    kCatchUp = 'u',
    kBalance = 'b',
    kChangeMembers = 'a',
    kResize = 'z',
    kScrub = 'f',
    kDiscard = 't',
    kSpares = 'h',
    kByOrder = 'o',
    kLogBlocks = 'l'
};

error_t parse_option(int key, char* text, argp_state* state)
{
    auto& arguments = *static_cast<Arguments*>(state->input);
    switch (key) {
    case kProfile: {
        const Profile* profile = find_profile(std::string_view(text));
        if (profile == nullptr)
            argp_error(state, "unknown profile %s", text);
        arguments.crash.shape.data_profile = profile->id;
        arguments.crash.shape.metadata_profile =
            default_metadata_profile(profile->id, arguments.crash.shape.member_count);
        return 0;
    }
    case kMetadata: {
        const Profile* profile = find_profile(std::string_view(text));
        if (profile == nullptr)
            argp_error(state, "unknown profile %s", text);
        arguments.crash.shape.metadata_profile = profile->id;
        return 0;
    }
    case kMembers:
        arguments.crash.shape.member_count = static_cast<uint32_t>(strtoul(text, nullptr, 10));
        return 0;
    case kSeed:
        arguments.crash.seed = strtoull(text, nullptr, 0);
        return 0;
    case kStates:
        arguments.crash.states_max = strtoull(text, nullptr, 10);
        return 0;
    case kShard:
        if (sscanf(text, "%u/%u", &arguments.crash.shard, &arguments.crash.shard_count) != 2 ||
            arguments.crash.shard >= arguments.crash.shard_count)
            argp_error(state, "a shard is INDEX/COUNT");
        return 0;
    case kMutants:
        arguments.mutants = true;
        arguments.only_mutant = text == nullptr ? 0 : static_cast<uint32_t>(strtoul(text, nullptr, 10));
        return 0;
    case kCompress:
        arguments.crash.compress = true;
        return 0;
    case kJoin:
        arguments.crash.join_rows = true;
        return 0;
    case kClean:
        arguments.crash.clean = true;
        return 0;
    case kBalance:
        arguments.crash.balance = true;
        return 0;
    case kChangeMembers:
        arguments.crash.change_members = true;
        return 0;
    case kResize:
        arguments.crash.resize = true;
        return 0;
    case kDiscard:
        arguments.crash.discard = true;
        return 0;
    case kScrub:
        arguments.crash.scrub = true;
        return 0;
    case kSpares:
        arguments.crash.spares = true;
        return 0;
    case kReturningMembers:
        arguments.crash.returning = true;
        return 0;
    case kByOrder:
        arguments.crash.returning = arguments.crash.by_order = true;
        return 0;
    case kCatchUp:
        arguments.crash.returning = arguments.crash.catch_up = true;
        return 0;
    case kLogBlocks:
        arguments.crash.shape.intent_log_bytes = strtoull(text, nullptr, 10) * kBlockBytes;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int run_once(const CrashOptions& options)
{
    const CrashReport report = run_crash_replay(options);
    printf(
        "crash-replay %s members=%u seed=%llu shard=%u/%u: instants=%llu (exhaustive %llu) states=%llu "
        "duplicates=%llu with-losses=%llu checks=%llu joined-blocks=%llu recovered-rows=%llu "
        "checksum-commits=%llu moved-blocks=%llu emptied-groups=%llu fsync-records=%llu "
        "replayed-records=%llu returned=%llu stale=%llu caught-up=%llu balances=%llu tolerance-changes=%llu "
        "replaced=%llu resized=%llu scrubs=%llu repaired=%llu resumed-scrubs=%llu refused=%llu "
        "violations=%llu\n",
        find_profile(options.shape.data_profile)->name, options.shape.member_count,
        static_cast<unsigned long long>(options.seed), options.shard, options.shard_count,
        static_cast<unsigned long long>(report.instants),
        static_cast<unsigned long long>(report.exhaustive_instants),
        static_cast<unsigned long long>(report.states), static_cast<unsigned long long>(report.duplicates),
        static_cast<unsigned long long>(report.losses), static_cast<unsigned long long>(report.checks),
        static_cast<unsigned long long>(report.joined_blocks),
        static_cast<unsigned long long>(report.recovered_rows),
        static_cast<unsigned long long>(report.checksum_commits),
        static_cast<unsigned long long>(report.moved_blocks),
        static_cast<unsigned long long>(report.emptied_groups),
        static_cast<unsigned long long>(report.fsync_records),
        static_cast<unsigned long long>(report.replayed_records),
        static_cast<unsigned long long>(report.returned),
        static_cast<unsigned long long>(report.stale_returns),
        static_cast<unsigned long long>(report.caught_up), static_cast<unsigned long long>(report.balances),
        static_cast<unsigned long long>(report.tolerance_changes),
        static_cast<unsigned long long>(report.replaced), static_cast<unsigned long long>(report.resized),
        static_cast<unsigned long long>(report.scrubs), static_cast<unsigned long long>(report.repaired),
        static_cast<unsigned long long>(report.resumed_scrubs),
        static_cast<unsigned long long>(report.refused), static_cast<unsigned long long>(report.violations));
    if (report.violations != 0) {
        printf("first violation: %s\n", report.first_violation.c_str());
        return 1;
    }
    if (options.join_rows && (report.joined_blocks == 0 || report.recovered_rows == 0)) {
        printf("no row was written in place: nothing was tested\n");
        return 1;
    }
    if (options.compress && report.compressed_blocks == 0) {
        printf("nothing was compressed: nothing was tested\n");
        return 1;
    }
    if (options.shape.intent_log_bytes != 0 && report.checksum_commits < options.commits / 4) {
        printf("the write-intent log was not full often enough: nothing was tested\n");
        return 1;
    }
    if (options.clean && (report.moved_blocks == 0 || report.emptied_groups == 0)) {
        printf("no block group was emptied: nothing was tested\n");
        return 1;
    }
    if (options.change_members && report.balances + report.replaced < 2) {
        printf("no member was removed: nothing was tested\n");
        return 1;
    }
    if (options.resize && (report.moved_blocks == 0 || report.resized < 2)) {
        printf("no member became smaller: nothing was tested\n");
        return 1;
    }
    if (options.discard && report.discarded_bytes == 0) {
        printf("nothing was discarded: nothing was tested\n");
        return 1;
    }
    if (options.scrub && (report.scrubs < 2 || report.repaired == 0 || report.resumed_scrubs == 0)) {
        printf("no scrub repaired anything: nothing was tested\n");
        return 1;
    }
    if (options.spares && (report.replaced < 2 || report.caught_up == 0)) {
        printf("no spare took a place: nothing was tested\n");
        return 1;
    }
    if (options.balance && (report.moved_blocks == 0 || report.balances < 2)) {
        printf("no balance ended: nothing was tested\n");
        return 1;
    }
    const uint64_t lacking = options.catch_up ? report.caught_up : report.stale_returns;
    if (options.returning && (report.returned == 0 || lacking == 0)) {
        printf("no member came back with anything missing: nothing was tested\n");
        return 1;
    }
    if (report.fsync_records == 0 || report.replayed_records == 0) {
        printf("no fsync was replayed: nothing of the fsync log was tested\n");
        return 1;
    }
    return 0;
}

// Full within most commits.
constexpr uint64_t kMutantLogBytes = 8 * kBlockBytes;

// One harms readers, some nodes that are older than a copy or a failure under load, one window of many, a
// copy that comes back, a spare, a target that was away, or keep a member from becoming smaller:
// tests/filesystem.
bool of_unit_tests(CommitMutant mutant)
{
    return mutant == CommitMutant::kDroppedPinned || mutant == CommitMutant::kCaughtUpNoNodes ||
           mutant == CommitMutant::kAbsentTargetTrusted || mutant == CommitMutant::kShrunkPartUsed ||
           mutant == CommitMutant::kCopiedNoNodes ||
           (mutant >= CommitMutant::kFirstMissedLeftOut && mutant <= CommitMutant::kSpareTorn);
}

// What brings out what it does.
CrashOptions options_for(CommitMutant mutant, CrashOptions options)
{
    options.mutant = mutant;
    options.clean = mutant >= CommitMutant::kEmptyingUnmarked && mutant <= CommitMutant::kLeftoversStay;
    const bool full_log = mutant == CommitMutant::kFloorBeforeCommit;
    options.catch_up = mutant == CommitMutant::kCaughtUpUnread;
    options.returning = options.catch_up || mutant == CommitMutant::kStaleUnrecorded;
    options.change_members =
        mutant >= CommitMutant::kNewMemberLast && mutant <= CommitMutant::kRecoveredCopyTrusted;
    options.resize = mutant >= CommitMutant::kShrunkFirst && mutant <= CommitMutant::kShrunkSlotsStay;
    options.scrub = mutant == CommitMutant::kScrubAhead;
    options.join_rows = options.returning || full_log || mutant == CommitMutant::kRecoveredCopyTrusted;
    // Without half of its members raid6 over four cannot be written: nobody could come back.
    const ProfileId profile = options.returning ? ProfileId::kRaid5 : options.shape.data_profile;
    options.shape.data_profile = profile;
    options.shape.metadata_profile = default_metadata_profile(profile, options.shape.member_count);
    options.shape.intent_log_bytes = full_log ? kMutantLogBytes : 0;
    return options;
}

bool is_caught(const CrashOptions& options, const char* beside)
{
    const CrashReport report = run_crash_replay(options);
    printf("mutant %u%s: %s after %llu states: %s\n", static_cast<uint32_t>(options.mutant), beside,
           report.violations ? "caught" : "SURVIVED", static_cast<unsigned long long>(report.states),
           report.first_violation.c_str());
    return report.violations != 0;
}

int run_mutants(const CrashOptions& options, uint32_t only)
{
    int survivors = 0;
    for (uint32_t number = 1; number < static_cast<uint32_t>(CommitMutant::kCount); ++number) {
        const auto mutant = static_cast<CommitMutant>(number);
        if (of_unit_tests(mutant) || mutant == CommitMutant::kNoRoom || (only != 0 && number != only))
            continue;
        CrashOptions its = options_for(mutant, options);
        survivors += is_caught(its, "") ? 0 : 1;
        if (its.clean || mutant == CommitMutant::kMapAfterSuperblock || mutant == CommitMutant::kMapInPlace) {
            its.clean = false;
            its.balance = true;
            survivors += is_caught(its, " under a balance") ? 0 : 1;
        }
    }
    return survivors == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv)
{
    static const argp_option options[] = {
        {"members", kMembers, "N", 0, "number of members (before --profile)", 0},
        {"profile", kProfile, "NAME", 0, "data profile; metadata follows it", 0},
        {"metadata", kMetadata, "NAME", 0, "metadata profile (behind --profile)", 0},
        {"seed", kSeed, "N", 0, "seed of the workload and of random subsets", 0},
        {"states", kStates, "N", 0, "distinct states to try", 0},
        {"shard", kShard, "I/N", 0, "only every N-th instant, from the I-th", 0},
        {"mutants", kMutants, "N", OPTION_ARG_OPTIONAL,
         "run every wrong protocol, or one; all must be caught", 0},
        {"clean", kClean, nullptr, 0, "empty block groups all the time", 0},
        {"balance", kBalance, nullptr, 0, "balance block groups all the time", 0},
        {"change-members", kChangeMembers, nullptr, 0, "add, replace and remove members all the time", 0},
        {"resize", kResize, nullptr, 0, "make members smaller and larger all the time", 0},
        {"discard", kDiscard, nullptr, 0, "what is free is discarded all the time", 0},
        {"scrub", kScrub, nullptr, 0, "members rot and are scrubbed all the time", 0},
        {"spares", kSpares, nullptr, 0, "members fail, and spares take their places, all the time", 0},
        {"log-blocks", kLogBlocks, "N", 0, "blocks of the write-intent log of each member", 0},
        {"compress", kCompress, nullptr, 0, "compress files, of which most can be", 0},
        {"join", kJoin, nullptr, 0, "write into rows that hold committed blocks", 0},
        {"catch-up", kCatchUp, nullptr, 0, "members come back, and what they missed is written to them", 0},
        {"by-order", kByOrder, nullptr, 0, "members come back, and one leaves and comes back while mounted",
         0},
        {"returning", kReturningMembers, nullptr, 0, "members that were away come back", 0},
        {nullptr, 0, nullptr, 0, nullptr, 0}};
    Arguments arguments;
    const argp parser{options, parse_option, nullptr, "Crash replay of commits over several members.",
                      nullptr, nullptr,      nullptr};
    argp_parse(&parser, argc, argv, 0, nullptr, &arguments);
    log_set_level(LogLevel::kNone);
    return arguments.mutants ? run_mutants(arguments.crash, arguments.only_mutant)
                             : run_once(arguments.crash);
}
