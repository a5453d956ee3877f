// SPDX-License-Identifier: MIT
// Crash replay over several members: a workload of many fsyncs and commits is recorded once, then every crash
// state within the bound is mounted, compared with what was acknowledged, and mounted again with members
// lost.
#pragma once

#include <cstdint>
#include <string>

#include "fs/volume/commit_mutant.h"
#include "tests/support/sim_volume.h"

namespace cowraid::test {

struct CrashOptions {
    VolumeShape shape;
    uint64_t seed = 1;
    uint64_t states_max = 20000;  // distinct states to try
    uint32_t shard = 0;  // of shard_count: takes every shard_count-th instant
    uint32_t shard_count = 1;
    CommitMutant mutant = CommitMutant::kNone;
    uint32_t commits = 40;  // of the workload
    bool stop_at_violation = true;
    bool clean = false;  // the cleaner works all the time, also after recovery
    // A member is away for a third of the commits; members lost before recovery come back after it.
    bool returning = false;
    bool by_order = false;  // it is taken out of service and called back while mounted
    bool catch_up = false;  // and what they missed is written to them, also after recovery
    bool balance = false;  // balances all the time, also after recovery
    // One is added, removed or replaced by copying, all the time; that goes on after recovery.
    bool change_members = false;
    bool resize = false;  // members become smaller and larger, beside balances; that goes on after recovery
    // What is free is discarded, as it comes free and by a trim after recovery.
    bool discard = false;
    // A member rots, and a scrub repairs it, again and again; that goes on after recovery. Not with rows that
    // are written in place: where such a write is torn, what rots besides is lost.
    bool scrub = false;
    bool spares = false;  // a member fails, a spare takes its place and catches up, all the time
    bool compress = false;  // files are compressed, and most of what is written can be
    bool join_rows = false;  // data goes into rows that hold committed blocks wherever there are some
};

struct CrashReport {
    uint64_t instants = 0, states = 0, duplicates = 0, losses = 0, checks = 0, torn_states = 0;
    uint64_t exhaustive_instants = 0;  // all subsets of unflushed writes were tried
    uint64_t compressed_blocks = 0;
    uint64_t joined_blocks = 0, recovered_rows = 0, checksum_commits = 0;
    uint64_t moved_blocks = 0, emptied_groups = 0;
    uint64_t fsync_records = 0, replayed_records = 0;
    // Mounts with members back; of those checked, with stale columns; mounts refused for what a member lacks.
    uint64_t returned = 0, stale_returns = 0, refused = 0;
    uint64_t balances = 0;  // that ended, of the workload
    uint64_t tolerance_changes = 0;  // by balances of the workload
    uint64_t replaced = 0;  // members in service, or by spares; of the workload
    uint64_t resized = 0;  // members that became smaller or larger, of the workload
    uint64_t discarded_bytes = 0;
    uint64_t scrubs = 0, repaired = 0;  // that ended, of the workload; blocks that they repaired
    uint64_t resumed_scrubs = 0;  // after a crash, at their position
    uint64_t caught_up = 0;  // mounts that wrote what members had missed, and called them current
    uint64_t violations = 0;
    std::string first_violation;
};

CrashReport run_crash_replay(const CrashOptions& options);

}  // namespace cowraid::test
