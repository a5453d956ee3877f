// SPDX-License-Identifier: MIT
// The trees of one commit: from a closed transaction to written nodes and new roots.
#pragma once

#include <vector>

#include "format/tree_codec.h"
#include "fs/commit/committer.h"

namespace cowraid {

struct CommittedTrees {
    TreeRoot file_tree;
    TreeRoot checksum_tree;
    TreeRoot free_space_tree;
    TreeRoot remap_tree;
    BlockRef root;
    std::vector<Ref<const Node>> nodes;  // all new nodes, for the cache
    uint64_t node_blocks = 0;  // taken from the allocator for them
};

// Merges the transaction into the trees of `base`, gives new nodes addresses, records allocation state
// until it stands still, and writes every node. Not flushed. `counters`: null leaves those of the last
// commit. Commit thread.
Status commit_trees(Committer& committer, Transaction& transaction, const Committed& base,
                    const VolumeCounters* counters, Generation generation, CommittedTrees& out);

}  // namespace cowraid
