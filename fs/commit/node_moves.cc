// SPDX-License-Identifier: MIT
#include "fs/commit/node_moves.h"

#include <algorithm>
#include <array>

#include "btree/node_image.h"
#include "format/items.h"
#include "fs/commit/commit_trees.h"
#include "fs/txn/operation.h"

namespace cowraid {

namespace {

// Of one commit: 8 MiB. Fewer are not worth the inner nodes above them.
constexpr uint64_t kMovesMax = 512;
constexpr uint64_t kMovesMin = 8;
// Free rows, in sixteenths of all: below the first there are moves, as many as are lacking. Below the second,
// well above the reserve, out of rows that are nearly full, too, which take many moves for a row.
constexpr uint64_t kWantedSixteenths = 4;
constexpr uint64_t kScarceSixteenths = 3;
constexpr uint32_t kPercentUsual = 50;

// A node where the checksum tree knows every block of `address`: all of the pointer to it but the generation.
bool node_at(Store& store, const View& view, VolumeAddress address, BlockRef& ref)
{
    std::array<BlockExpectation, kNodeBlocks> expected{};
    if (!store.checksums.lookup(view, address, expected).ok())
        return false;
    ref.address = address;
    for (uint32_t block = 0; block < kNodeBlocks; ++block)
        ref.checksums[block] = expected[block].checksum;
    return std::all_of(expected.begin(), expected.end(), [](const BlockExpectation& e) { return e.known; });
}

Generation generation_of(const std::byte* block)
{
    return {node_header(block).generation};
}

// Of groups of file nodes that have rows of several and take some, those with a member away once they are
// opened.
GroupNumbers numbers_under_parity(const Store& store)
{
    GroupNumbers sum{};
    for (const GroupNumbers& numbers : store.allocator.group_numbers(kGroupMetadata)) {
        const Ref<const ArrayGroup> group = store.volume.array().group_at(numbers.address);
        if (!group || group->geometry.parity == 0 || numbers.planned || numbers.closed || numbers.broken)
            continue;
        sum.total_blocks += numbers.total_blocks;
        sum.live_blocks += numbers.live_blocks;
        sum.pinned_blocks += numbers.pinned_blocks;
        sum.free_row_blocks += numbers.free_row_blocks;
    }
    return sum;
}

}  // namespace

void plan_node_moves(Store& store)
{
    if (!store.ledger.metadata_room().nodes_have_parity)
        return;
    const GroupNumbers numbers = numbers_under_parity(store);
    const uint64_t accounted = numbers.live_blocks + numbers.pinned_blocks + numbers.free_row_blocks;
    const bool has_partial_rows = accounted + kMovesMin * kNodeBlocks < numbers.total_blocks;
    const uint64_t wanted = numbers.total_blocks / 16 * kWantedSixteenths;
    if (!has_partial_rows || numbers.free_row_blocks >= wanted)
        return;
    const uint64_t lacking = (wanted - numbers.free_row_blocks) / kNodeBlocks;
    const Ref<Transaction> open = store.timeline.open();
    for (uint64_t count = std::min(kMovesMax, lacking); count >= kMovesMin; count /= 2) {
        ChangeReservation reservation(store.ledger);
        if (!reservation.take({.moved_nodes = count}, Leave::kNothing))
            continue;
        open->moved_nodes = count;
        return;
    }
}

std::vector<Key> find_node_moves(Store& store, const View& view, uint64_t count)
{
    const GroupNumbers numbers = numbers_under_parity(store);
    const bool scarce = numbers.free_row_blocks < numbers.total_blocks / 16 * kScarceSixteenths;
    std::vector<VolumeAddress> addresses;
    store.allocator.sparse_units(kGroupMetadata, kNodeBlocks, scarce ? 100 : kPercentUsual, count, addresses);
    std::vector<BlockRef> refs;
    for (const VolumeAddress address : addresses)
        if (BlockRef ref; node_at(store, view, address, ref))
            refs.push_back(ref);
    AlignedBuffer memory(refs.size() * kBlockBytes);
    std::vector<ReadPiece> pieces(refs.size());
    for (size_t i = 0; i < pieces.size(); ++i) {
        pieces[i].address = refs[i].address;
        pieces[i].block_count = 1;
        pieces[i].memory = memory.data() + i * kBlockBytes;
        pieces[i].checksums = refs[i].checksums.data();
    }
    std::vector<Key> keys;
    if (pieces.empty() || !store.volume.array().read(pieces).ok())
        return keys;
    for (size_t i = 0; i < refs.size(); ++i) {
        BlockRef& ref = refs[i];
        ref.generation = generation_of(memory.data() + i * kBlockBytes);
        const Result<Ref<const Node>> node = store.cache.get(ref, view.committed->file_tree.tree_id, -1);
        if (node.ok())
            keys.push_back((*node)->key(0));
    }
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    return keys;
}

}  // namespace cowraid
