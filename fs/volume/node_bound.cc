// SPDX-License-Identifier: MIT
#include "fs/volume/node_bound.h"

#include <algorithm>

#include "format/extent_codec.h"
#include "format/items.h"

namespace cowraid {

namespace {

constexpr uint64_t kBlocksPerNode = kNodeBytes / kBlockBytes;
// Of one item, with key and line in the node's index; rounded up.
constexpr uint64_t kExtentItemBytes = 64;
constexpr uint64_t kItemOverheadBytes = 32;
constexpr uint64_t kChecksumItemBytes = kChecksumWindowBlocks * 8 + kExtentItemBytes;
constexpr uint64_t kSpaceWindowBlocks = 2048;
constexpr uint64_t kSpaceItemBytes = kSpaceWindowBlocks / 8 + kExtentItemBytes;
constexpr uint64_t kGroupSummaryBytes = sizeof(DiskGroupSummary) + kItemOverheadBytes;
// An inner node has at least as many children, the root and its like aside.
constexpr uint64_t kMinChildren = 16;
// Paths down to the first leaf of the file tree; of the others.
constexpr uint64_t kFilePathNodes = 16;
constexpr uint64_t kSystemPathNodes = 32;
// Of a commit of checksums, which has no file tree.
constexpr uint64_t kChecksumPathNodes = 16;

// Nodes are half full at least.
uint64_t nodes_for(uint64_t bytes)
{
    return divide_up(bytes, kNodeBytes / 2);
}

// Leaves of the free-space tree for so many addresses.
uint64_t space_leaves(uint64_t address_blocks)
{
    return nodes_for((divide_up(address_blocks, kSpaceWindowBlocks) + 1) * kSpaceItemBytes);
}

// Leaves and the nodes above them.
uint64_t with_inner_nodes(uint64_t leaves)
{
    return leaves + leaves / (kMinChildren - 1);
}

}  // namespace

PendingChanges& PendingChanges::operator+=(const PendingChanges& other)
{
    entries += other.entries;
    bytes += other.bytes;
    freed_runs += other.freed_runs;
    checksum_windows += other.checksum_windows;
    remap_windows += other.remap_windows;
    remap_bytes += other.remap_bytes;
    data_blocks += other.data_blocks;
    data_runs += other.data_runs;
    front_runs += other.front_runs;
    moved_nodes += other.moved_nodes;
    moved_system_nodes += other.moved_system_nodes;
    return *this;
}

PendingChanges& PendingChanges::operator-=(const PendingChanges& other)
{
    entries -= other.entries;
    bytes -= other.bytes;
    freed_runs -= other.freed_runs;
    checksum_windows -= other.checksum_windows;
    remap_windows -= other.remap_windows;
    remap_bytes -= other.remap_bytes;
    data_blocks -= other.data_blocks;
    data_runs -= other.data_runs;
    front_runs -= other.front_runs;
    moved_nodes -= other.moved_nodes;
    moved_system_nodes -= other.moved_system_nodes;
    return *this;
}

NodeBound node_bound(const MetadataRoom& room, const PendingChanges& pending)
{
    // While there are stripes that hold nothing data goes there; only tails of stripes may go into partial
    // rows.
    const uint64_t in_stripes = std::min(pending.data_blocks, room.stripe_blocks);
    const uint64_t in_partial_rows = pending.data_blocks - in_stripes;
    const uint64_t stripes = divide_up(in_stripes, room.blocks_per_stripe);
    // Compressed extents: new ones; those that a run cuts at its two ends, or of which it takes the last
    // part.
    const uint64_t fresh_frames = room.makes_frames ? pending.data_blocks / kFrameBlocksMax : 0;
    const uint64_t cut_frames = room.has_frames ? 2 * pending.data_runs : 0;
    const uint64_t frame_runs = cut_frames * (kFrameBlocksMax - 1);
    // A part that is left of an inline frame has all of it.
    const uint64_t cut_inline = room.has_frames ? 2 * pending.front_runs : 0;
    const uint64_t cut_bytes =
        sizeof(DiskExtentRun) * frame_runs + cut_inline * (kInlineBytesMax + kInlineItemBytes);

    // File tree. A run cuts an extent in two and adds itself, in one leaf, or replaces neighbours.
    const uint64_t pieces = 2 * pending.data_runs + in_partial_rows + 2 * stripes + fresh_frames;
    const uint64_t touched = pending.entries + pending.data_runs + pending.data_blocks / 16;
    const uint64_t copied = std::min(touched, room.used_nodes);
    const uint64_t moved_nodes = std::min(pending.moved_nodes, room.used_nodes);
    const uint64_t above = std::min(3 * (copied + moved_nodes), room.used_nodes / kMinChildren + 4);
    const uint64_t fresh = nodes_for(pending.bytes + kItemOverheadBytes * pending.entries +
                                     kExtentItemBytes * pieces + cut_bytes);
    const uint64_t file = 2 * copied + moved_nodes + above + with_inner_nodes(fresh) + kFilePathNodes;

    // Checksum tree: windows of a stripe are neighbours; a block in a partial row has one, and so have its
    // parity blocks.
    const uint64_t windows = pending.checksum_windows + (1 + room.parity) * in_partial_rows +
                             (room.nodes_have_parity ? 3 * file : 0);
    const uint64_t all_sums = with_inner_nodes(
        nodes_for(divide_up(room.address_blocks, kChecksumWindowBlocks) * kChecksumItemBytes));
    const uint64_t sums = std::min(with_inner_nodes(windows + nodes_for(windows * kChecksumItemBytes) +
                                                    2 * stripes + nodes_for(3 * in_stripes * 8)),
                                   all_sums);

    // When the write-intent log is full, checksums of partial rows are committed on the way. Each
    // such commit frees what the one before it took, so that one of them counts: two at once only while the
    // commit itself, which takes more, has not begun.
    // Each window of a flush may end in part of a stripe.
    const uint64_t flush_windows = room.makes_frames ? pending.data_blocks / kFlushWindowBlocks : 0;
    const uint64_t tails = flush_windows * std::min(room.blocks_per_stripe, kFlushWindowBlocks);
    const uint64_t joined = std::min(in_partial_rows + tails, room.partial_row_blocks);
    const uint64_t partial_row_windows = (1 + room.parity) * joined;
    const uint64_t early =
        joined < room.log_rows
            ? 0
            : std::min(
                  with_inner_nodes(partial_row_windows + nodes_for(partial_row_windows * kChecksumItemBytes)),
                  all_sums) +
                  kChecksumPathNodes +
                  with_inner_nodes(space_leaves(room.node_address_blocks) +
                                   std::min(2 * joined, space_leaves(room.address_blocks)));

    // Remap tree: what a place was called, and what the name stood for, go with a block that was moved.
    const uint64_t freed = room.has_moved_blocks ? pending.data_blocks + pending.freed_runs + frame_runs : 0;
    const uint64_t moves = std::min(pending.remap_windows + 2 * freed, room.used_nodes);
    const uint64_t moved = moves + std::min(3 * moves, room.used_nodes / kMinChildren + 4) +
                           with_inner_nodes(nodes_for(pending.remap_bytes));

    // System nodes that get new places, with those above them.
    const uint64_t emptied = std::min(pending.moved_system_nodes, room.used_nodes);
    const uint64_t replaced =
        emptied == 0 ? 0 : emptied + std::min(3 * emptied, room.used_nodes / kMinChildren + 4);

    // Free-space tree: windows of what is taken and freed, and of the nodes themselves.
    const uint64_t data_windows =
        stripes + 2 * in_partial_rows + pending.data_blocks + pending.freed_runs + frame_runs;
    const uint64_t space =
        std::min(2 * data_windows, space_leaves(room.address_blocks)) +
        std::min(2 * (file + sums + moved + replaced), space_leaves(room.node_address_blocks)) +
        nodes_for(room.group_count * kGroupSummaryBytes);

    // The last row of nodes may not be full.
    return {.file_blocks = kBlocksPerNode * (file + room.nodes_per_row),
            .system_blocks =
                kBlocksPerNode * (sums + moved + replaced + with_inner_nodes(space) + kSystemPathNodes),
            .early_blocks = kBlocksPerNode * early};
}

uint64_t node_blocks_bound(const MetadataRoom& room, const PendingChanges& pending)
{
    const NodeBound bound = node_bound(room, pending);
    return bound.file_blocks + bound.system_blocks + bound.early_blocks;
}

MetadataNeed metadata_need(uint64_t data_blocks, double checksums_per_data)
{
    // Nodes of a tree that grows at random places are ln 2 full (Yao, "On random 2-3 trees", 1978).
    constexpr double kFill = 0.69;
    // What a commit may copy at once; a larger volume commits before it changes more.
    constexpr double kCopyBlocksMax = static_cast<double>(512 * kMiB / kBlockBytes);
    constexpr double kReserveBlocksMost = static_cast<double>(kMetadataReserveBlocksMax);
    const double blocks = static_cast<double>(data_blocks) / kBlockBytes / kFill;
    const double file = blocks * kExtentItemBytes;
    const double system = blocks * checksums_per_data *
                          (static_cast<double>(kChecksumItemBytes) / kChecksumWindowBlocks +
                           static_cast<double>(kSpaceItemBytes) / kSpaceWindowBlocks);
    const double copied = std::min(1.0, kCopyBlocksMax / std::max(1.0, file + system));
    // An eighth of it all is the reserve, up to its most.
    const double part = std::min(1.0 / 7, kReserveBlocksMost / std::max(1.0, (file + system) * (1 + copied)));
    const double factor = (1 + copied) * (1 + part);
    return {.file_blocks = static_cast<uint64_t>(file * factor),
            .system_blocks = static_cast<uint64_t>(system * factor)};
}

}  // namespace cowraid
