// SPDX-License-Identifier: MIT
// What a mount reads before anything else: the root tree of the last commit.
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

}  // namespace cowraid
