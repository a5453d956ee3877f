// SPDX-License-Identifier: MIT
// How many blocks the nodes of a commit take at most, and how many a volume comes to need for nodes. Numbers
// only.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace cowraid {

// Most that is kept back for operations that free space.
inline constexpr uint64_t kMetadataReserveBlocksMax = 16 * kMiB / kBlockBytes;

// A flush that compresses goes by windows of so many blocks of files (fs/files/flush_stream.h). Large enough
// that what does not fill a stripe at their ends is little.
inline constexpr uint64_t kFlushWindowBlocks = 32 * kMiB / kBlockBytes;

// What the item of an inline frame takes besides the frame; rounded up.
inline constexpr uint64_t kInlineItemBytes = 96;

// Pieces of files that dirty blocks are, and those that may cut an inline frame: they begin in the first
// kFrameBlocksMax blocks of a file that has something stored.
struct DirtyRuns {
    int64_t all = 0, front = 0;

    DirtyRuns operator+(const DirtyRuns& other) const { return {all + other.all, front + other.front}; }
    DirtyRuns operator-(const DirtyRuns& other) const { return {all - other.all, front - other.front}; }
};

// What a commit has to record.
struct PendingChanges {
    uint64_t entries = 0, bytes = 0;  // changed items of the file tree, and their payload
    uint64_t freed_runs = 0;  // pieces of data that these may give up
    uint64_t checksum_windows = 0;  // changed items of the checksum tree
    uint64_t remap_windows = 0, remap_bytes = 0;  // of the remap tree, and how much may be new
    uint64_t data_blocks = 0;  // dirty: no items yet
    uint64_t data_runs = 0, front_runs = 0;  // pieces of files that these blocks are: DirtyRuns
    uint64_t moved_nodes = 0;  // of the file tree, given new places so that rows or groups come free
    uint64_t moved_system_nodes = 0;  // of the other trees

    PendingChanges& operator+=(const PendingChanges& other);
    PendingChanges& operator-=(const PendingChanges& other);
};

// What there is for nodes, and what decides how many a change takes.
struct MetadataRoom {
    // In free rows of groups for nodes of file trees, of groups for those of the other trees, of all these: a
    // group may be for both, or for one where metadata is under parity; during a balance there are all kinds.
    uint64_t free_blocks = 0, system_free_blocks = 0, all_free_blocks = 0;
    // Kept back for operations that free space. Of the second where system trees have groups of their own.
    uint64_t reserve_blocks = 0, system_reserve_blocks = 0;
    uint64_t used_nodes = 0;  // of all trees
    uint64_t address_blocks = 0;  // of all groups, parity included
    uint64_t node_address_blocks = 0;  // the part of groups for metadata
    uint64_t group_count = 0;
    uint64_t stripe_blocks = 0;  // free data blocks in stripes that hold nothing
    uint64_t blocks_per_stripe = 1;  // of data, in the smallest stripe
    uint64_t parity = 0;  // blocks of it that change with a block of data
    bool nodes_have_parity = false;  // so that the checksum tree has those of file trees
    uint64_t partial_row_blocks = 0;  // free blocks of data in rows that hold others
    uint64_t log_rows = UINT64_MAX;  // for which the write-intent log has room between two commits
    uint64_t nodes_per_row = 1;  // side by side in the rows of one node, in the widest group
    bool has_moved_blocks = false;  // freeing one changes the remap tree
    bool has_frames = false;  // files have compressed extents
    bool makes_frames = false;  // files get compressed extents
};

// Blocks of nodes that a commit of `pending` takes at most: copies of what it changes, halves of nodes that
// it splits, and what is new. docs/DESIGN.md, "Space", derives it.
struct NodeBound {
    uint64_t file_blocks = 0, system_blocks = 0;  // of the file tree; of the others
    uint64_t early_blocks = 0;  // of system trees too, by commits of checksums before it
};
NodeBound node_bound(const MetadataRoom& room, const PendingChanges& pending);
// Of all trees.
uint64_t node_blocks_bound(const MetadataRoom& room, const PendingChanges& pending);

// Groups that a volume with `data_blocks` blocks of data comes to need, in blocks, when each of them is an
// extent of its own: for the nodes of file trees, and for those of the other trees. Includes room for a
// commit to copy what it changes, and the reserve. `checksums_per_data`: blocks with a checksum, parity
// included, per block of data.
struct MetadataNeed {
    uint64_t file_blocks = 0, system_blocks = 0;
};
MetadataNeed metadata_need(uint64_t data_blocks, double checksums_per_data);

}  // namespace cowraid
