// SPDX-License-Identifier: MIT
// From an opened volume to a running filesystem.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fs/commit/commit_trees.h"
#include "fs/commit/committer.h"

namespace cowraid {

// What the root tree of the last commit says.
struct RootContent {
    Ref<const Committed> committed;
    VolumeCounters counters;
    std::vector<GroupUsage> usages;  // of groups that were ever written
};

// Reads root tree and group summaries: a few nodes, whatever the size of the volume.
Result<RootContent> read_root(Volume& volume, std::string& why);

// After a crash, rows that were being written in place. The open transaction learns their checksums; a
// volume that is mounted read-only is not changed.
Status recover_rows(Committer& committer, RecoveryCounts& counts, std::string& why);

}  // namespace cowraid
