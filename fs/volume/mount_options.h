// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "base/units.h"
#include "raid56/array.h"

namespace cowraid {

enum class AccessTime : uint8_t { kRelative, kNever, kStrict };

// How what is written from now on is compressed. Aligned so that it is read and changed in one step.
struct alignas(4) CompressionChoice {
    bool on = false;
    bool force = false;  // also what a sample says is incompressible
    int8_t level = 3;  // kZstdLevelMin..kZstdLevelMax

    bool operator==(const CompressionChoice&) const = default;
};

// Which devices are told what holds nothing any more.
enum class DiscardMode : uint8_t {
    kAuto,  // block devices that do not seek and take discards
    kAsync,  // all that take them, image files too
    kOff,
};

// Why a volume is only read, and what to do about it. Empty: it may be written.
struct ReadOnlyReason {
    std::string text, step;
};

struct MountOptions {
    bool read_only = false;
    // Mount although members are missing.
    bool degraded = false;
    // With it: write with exactly half of the members, where a majority is asked for otherwise. Who does that
    // with both halves has two volumes.
    bool half = false;
    // With read_only: mount although more members are missing than the profiles tolerate.
    bool rescue = false;
    // What is lost of the fsync log is left out; all of it where it cannot be applied or committed.
    bool drop_fsync_log = false;
    // Nothing of it is applied. For the second attempt of Filesystem::open().
    bool without_fsync_log = false;
    AccessTime access_time = AccessTime::kRelative;
    bool directory_times = true;  // access times of directories, too
    // Changes of names wait until they are durable. With `sync` others do, too: the kernel sees to writes.
    bool sync = false;
    bool dirsync = false;
    uint32_t commit_seconds = 5;  // 1..300
    CompressionChoice compression;
    // What the mount may take in all. The shares below follow from it unless they are given.
    uint64_t memory_bytes = kGiB;
    uint64_t dirty_bytes_max = 256 * kMiB;  // writers wait above it
    uint64_t node_cache_bytes = 128 * kMiB;
    // Inodes that stay in memory though nobody uses them.
    size_t idle_inodes_max = 64 * 1024;
    // Writes into rows that hold other blocks: how, and from what share of used space on (negative: where
    // that is cheaper, alloc/join_policy.h).
    double join_above = -1;
    PartialWriteOptions partial_writes;
    // Per cent of the time that work in the background may take beside users (WorkBudget); 1..100.
    uint32_t background_share = 11;
    // Seconds with errors of a member within ten minutes that are too many (MemberSet); 0: none are.
    uint32_t error_budget = 20;
    // Readers wait so long for a member before they do without it, where they can (0: for ever), and a
    // request that takes longer than the second spends the error budget (0: none does).
    uint32_t read_deadline_seconds = 2;
    uint32_t slow_io_seconds = 10;
    // A member that failed is replaced by a spare after so long, one that was not there at the mount after
    // five times as long: it may come back.
    uint32_t spare_seconds = 60;
    // Until what catching up could not write, and files that could not be deleted, are tried again for the
    // first time; then less and less often.
    uint32_t retry_seconds = 60;
    // Block groups with much free space in them are emptied when free stripes run short.
    bool clean = true;
    DiscardMode discard = DiscardMode::kAuto;
    // No threads: the caller drives step(). For the simulator.
    bool manual_commit = false;

    // What the fsync log has counts as far as it can be read.
    [[nodiscard]] bool takes_what_there_is() const { return drop_fsync_log || (rescue && read_only); }
};

}  // namespace cowraid
