// SPDX-License-Identifier: MIT
#include "fs/space_budget.h"

#include <algorithm>

#include "base/assert.h"
#include "format/items.h"

namespace cowraid {

namespace {

constexpr uint64_t kBlocksPerNode = kNodeBytes / kBlockBytes;
// Of one item, with key and line in the node's index; rounded up.
constexpr uint64_t kExtentItemBytes = 64;
constexpr uint64_t kItemOverheadBytes = 32;
constexpr uint64_t kChecksumItemBytes = kChecksumWindowBlocks * 8 + kExtentItemBytes;
constexpr uint64_t kRemapItemBytes = kChecksumWindowBlocks * 8 + kExtentItemBytes;
constexpr uint64_t kSpaceWindowBlocks = 2048;
constexpr uint64_t kSpaceItemBytes = kSpaceWindowBlocks / 8 + kExtentItemBytes;
constexpr uint64_t kGroupSummaryBytes = sizeof(DiskGroupSummary) + kItemOverheadBytes;
// An inner node has at least as many children, the root and its like aside.
constexpr uint64_t kMinChildren = 32;
constexpr uint64_t kFewNodes = 16;

// Nodes are half full at least.
uint64_t nodes_for(uint64_t bytes)
{
    return divide_up(bytes, kNodeBytes / 2);
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
    checksum_windows += other.checksum_windows;
    remap_windows += other.remap_windows;
    data_blocks += other.data_blocks;
    data_runs += other.data_runs;
    return *this;
}

PendingChanges& PendingChanges::operator-=(const PendingChanges& other)
{
    entries -= other.entries;
    bytes -= other.bytes;
    checksum_windows -= other.checksum_windows;
    remap_windows -= other.remap_windows;
    data_blocks -= other.data_blocks;
    data_runs -= other.data_runs;
    return *this;
}

uint64_t node_blocks_bound(const MetadataRoom& room, const PendingChanges& pending)
{
    // Data goes into stripes that hold nothing as long as there are any; elsewhere each block is alone.
    const uint64_t dense = std::min(pending.data_blocks, room.stripe_blocks);
    const uint64_t alone = pending.data_blocks - dense;
    const uint64_t stripes = divide_up(dense, room.blocks_per_stripe);

    // File tree. A run cuts an extent in two and adds itself, in one leaf, or replaces neighbours.
    const uint64_t pieces = 2 * pending.data_runs + alone + 2 * stripes;
    const uint64_t touched = pending.entries + pending.data_runs + pending.data_blocks / 16;
    const uint64_t copied = std::min(touched, room.used_nodes);
    const uint64_t above = std::min(3 * copied, room.used_nodes / kMinChildren + 4);
    const uint64_t fresh =
        nodes_for(pending.bytes + kItemOverheadBytes * pending.entries + kExtentItemBytes * pieces);
    const uint64_t file = 2 * copied + above + with_inner_nodes(fresh);

    // Checksum tree: windows of a stripe are neighbours; a block alone has one, and so have its parity
    // blocks.
    const uint64_t windows = pending.checksum_windows + (1 + room.parity) * alone;
    const uint64_t all_sums = with_inner_nodes(
        nodes_for(divide_up(room.address_blocks, kChecksumWindowBlocks) * kChecksumItemBytes));
    const uint64_t sums = std::min(with_inner_nodes(windows + nodes_for(windows * kChecksumItemBytes) +
                                                    2 * stripes + nodes_for(3 * dense * 8)),
                                   all_sums);

    // Free-space tree: what is taken, what is freed, and the nodes themselves.
    const uint64_t places = stripes + 2 * alone + pending.entries + pending.data_runs + file + sums;
    const uint64_t all_space =
        with_inner_nodes(nodes_for(divide_up(room.address_blocks, kSpaceWindowBlocks) * kSpaceItemBytes +
                                   room.group_count * (kGroupSummaryBytes + kSpaceItemBytes)));
    const uint64_t space = std::min(with_inner_nodes(2 * places), all_space);

    const uint64_t moved = pending.remap_windows + nodes_for(pending.remap_windows * kRemapItemBytes);
    return kBlocksPerNode * (file + sums + space + with_inner_nodes(moved) + kFewNodes);
}

MetadataNeed metadata_need(uint64_t data_blocks, double checksums_per_data)
{
    // Nodes of a tree that grows at random places are ln 2 full (Yao, "On random 2-3 trees", 1978).
    constexpr double kFill = 0.69;
    // What a commit may copy at once; a larger volume commits before it changes more.
    constexpr double kCopyBlocksMax = static_cast<double>(512 * kMiB / kBlockBytes);
    const double blocks = static_cast<double>(data_blocks) / kBlockBytes / kFill;
    const double file = blocks * kExtentItemBytes;
    const double system = blocks * checksums_per_data *
                          (static_cast<double>(kChecksumItemBytes) / kChecksumWindowBlocks +
                           static_cast<double>(kSpaceItemBytes) / kSpaceWindowBlocks);
    const double copied = std::min(1.0, kCopyBlocksMax / std::max(1.0, file + system));
    // An eighth of it all is the reserve.
    constexpr double kWithReserve = 8.0 / 7;
    return {.file_blocks = static_cast<uint64_t>(file * (1 + copied) * kWithReserve),
            .system_blocks = static_cast<uint64_t>(system * (1 + copied) * kWithReserve)};
}

void SpaceBudget::set_data_room(uint64_t blocks)
{
    MutexLock lock(mutex_);
    data_room_ = blocks;
}

void SpaceBudget::set_metadata_room(const MetadataRoom& room)
{
    MutexLock lock(mutex_);
    room_ = room;
}

bool SpaceBudget::promise_data(uint64_t blocks)
{
    MutexLock lock(mutex_);
    if (promised_ + blocks > data_room_)
        return false;
    promised_ += blocks;
    return true;
}

void SpaceBudget::force_data(uint64_t blocks)
{
    MutexLock lock(mutex_);
    promised_ += blocks;
}

void SpaceBudget::return_data(uint64_t blocks)
{
    MutexLock lock(mutex_);
    CW_ASSERT(blocks <= promised_);
    promised_ -= blocks;
}

void SpaceBudget::data_taken(uint64_t blocks, uint64_t room)
{
    MutexLock lock(mutex_);
    CW_ASSERT(blocks <= promised_);
    promised_ -= blocks;
    data_room_ = room;
}

bool SpaceBudget::may_fit_data(uint64_t blocks, uint64_t returning) const
{
    MutexLock lock(mutex_);
    return promised_ + blocks <= data_room_ + returning;
}

uint64_t SpaceBudget::data_available() const
{
    MutexLock lock(mutex_);
    return data_room_ > promised_ ? data_room_ - promised_ : 0;
}

void SpaceBudget::claim(const PendingChanges& changes)
{
    MutexLock lock(mutex_);
    claimed_ += changes;
}

void SpaceBudget::unclaim(const PendingChanges& changes)
{
    MutexLock lock(mutex_);
    claimed_ -= changes;
}

bool SpaceBudget::metadata_fits(const PendingChanges& pending, bool use_reserve) const
{
    MutexLock lock(mutex_);
    PendingChanges all = pending;
    all += claimed_;
    return node_blocks_bound(room_, all) + (use_reserve ? 0 : room_.reserve_blocks) <= room_.free_blocks;
}

bool SpaceBudget::may_fit_metadata(const PendingChanges& changes, uint64_t returning) const
{
    MutexLock lock(mutex_);
    return node_blocks_bound(room_, changes) + room_.reserve_blocks <= room_.free_blocks + returning;
}

MetadataRoom SpaceBudget::metadata_room() const
{
    MutexLock lock(mutex_);
    return room_;
}

}  // namespace cowraid
