// SPDX-License-Identifier: MIT
// The passes of an offline check (fs/check/check.h), in the order check.cc runs them. Every pass reads only,
// goes on after what it finds, and reports through the context's findings. One thread.
#pragma once

#include <optional>
#include <string>

#include "btree/check.h"
#include "btree/node_cache.h"
#include "fs/check/check.h"
#include "fs/check/check_census.h"
#include "fs/check/check_findings.h"
#include "fs/commit/commit_trees.h"
#include "fs/txn/remap.h"
#include "fs/volume/volume.h"

namespace cowraid {

struct CheckContext {
    Volume& volume;
    NodeCache& cache;
    Findings& findings;
    BlockCensus& census;
    const CheckOptions& options;
    const uint64_t raw_blocks;  // of all members

    // False once a part of the tree could not be read: what it would have said is not known to be missing.
    bool file_tree_whole = true;
    bool checksum_tree_whole = true;
    bool space_tree_whole = true;
    bool remap_tree_whole = true;
    // Where blocks are, as of the last commit. Set once the root tree was read.
    const RemapLookup* remap = nullptr;
    View view;
    uint64_t used_features = 0, used_readonly_features = 0;  // that files need
    uint64_t moved_blocks = 0;  // that have an entry
    uint64_t resolved_blocks = 0;  // of extents, by an entry
    uint64_t stored_bytes = 0, stored_bytes_done = 0;  // of members, that check_stored_blocks() reads
    // Every node of every tree was seen.
    bool trees_whole = true;

    [[nodiscard]] Generation generation() const { return volume.superblock().generation; }
    [[nodiscard]] CheckReport& report() { return findings.report(); }
};

// What the root tree says.
struct CheckedRoots {
    std::optional<TreeRoot> file_tree, checksum_tree, space_tree, remap_tree;
    std::optional<VolumeCounters> counters;
};

// Members that are missing, superblock and map copies of those that are not.
void check_members(CheckContext& context);
CheckedRoots check_root_tree(CheckContext& context);
// Moved blocks: the tree itself; after the file tree, that all of it is used.
void check_remap_tree(CheckContext& context, const TreeRoot& tree);
void check_remap_use(CheckContext& context, const TreeRoot& tree);
// Inodes, names, extents, counters.
void check_file_tree(CheckContext& context, const CheckedRoots& roots);
// Every checksum belongs to a block of a group that keeps checksums.
void check_checksum_tree(CheckContext& context, const TreeRoot& tree);
// Every block that needs a checksum has one. After all trees.
void check_checksum_cover(CheckContext& context);
// The nodes of the free-space tree, which count as used like all others.
void check_space_nodes(CheckContext& context, const TreeRoot& tree);
// Recorded windows and summaries against the census. After all trees.
void check_space_windows(CheckContext& context, const TreeRoot& tree);
// Reads what has a checksum, on every member.
void check_stored_blocks(CheckContext& context);
// Names the files that hold blocks which are lost. After check_stored_blocks().
void check_lost_files(CheckContext& context, const TreeRoot& file_tree);

// What every walk over a tree does with its nodes: counts them, takes their blocks, looks at every copy.
class NodeWatch {
public:
    // `content`: of the groups the tree's nodes may lie in.
    NodeWatch(CheckContext& context, uint32_t content) : context_(context), content_(content) { }

    void node(const Node& node);
    void problem(const std::string& text);
    // No node was skipped so far.
    [[nodiscard]] bool whole() const { return whole_; }

private:
    void check_copies(const Node& node);

    CheckContext& context_;
    const uint32_t content_;
    bool whole_ = true;
};

}  // namespace cowraid
