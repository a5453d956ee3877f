// SPDX-License-Identifier: MIT
// From an opened volume to a running filesystem.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fs/commit/commit_trees.h"
#include "fs/core.h"

namespace cowraid {

// What the root tree of the last commit says.
struct RootContent {
    Ref<const Committed> committed;
    VolumeCounters counters;
    std::vector<GroupUsage> usages;  // of groups that were ever written
};

// Reads root tree and group summaries: a few nodes, whatever the size of the volume.
Result<RootContent> read_root(Volume& volume, std::string& why);

// A core over the volume with its groups in the allocator; starts nothing and writes nothing.
std::unique_ptr<FilesystemCore> make_core(const MountOptions& options, std::unique_ptr<Volume> volume,
                                          const RootContent& root);

// After a crash, rows that were being written in place. The core's open transaction learns their checksums; a
// volume that is mounted read-only is not changed.
Status recover_rows(FilesystemCore& core, RecoveryCounts& counts, std::string& why);

// For a volume that is mounted read-only: rows, then the fsync log, in memory only. `why` on failure.
Status recover_in_memory(FilesystemCore& core, std::string& why);

// First writes, recovery, room ahead, orphans, threads. `why` on failure. kNoSpace when there is no room to
// commit what the logs hold: if replay_done is set, all of that is in memory and can be read.
Status start_writing(FilesystemCore& core, std::string& why);

}  // namespace cowraid
