// SPDX-License-Identifier: MIT
#include "fs/commit/commit_trees.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_map>

#include "btree/cow_tree.h"
#include "format/items.h"
#include "format/window_codec.h"
#include "fs/commit/node_moves.h"
#include "fs/files/flush.h"
#include "fs/volume/commit_mutant.h"

namespace cowraid {

namespace {

// Lays what is new in a window of numbers by block over what is stored.
class WindowCombiner : public Combiner {
public:
    using Encode = std::vector<std::byte> (*)(const BlockWindow&);
    using Decode = bool (*)(std::span<const std::byte>, BlockWindow&);
    // `dropped`: what is to go of the window of each of them; or nothing does.
    WindowCombiner(std::span<const BlockTable::Entry> entries, Encode encode, Decode decode,
                   std::span<const uint64_t> dropped = {})
        : entries_(entries), dropped_(dropped), encode_(encode), decode_(decode)
    {
    }
    static std::vector<std::byte> update_of(size_t index)
    {
        std::vector<std::byte> update(sizeof index);
        std::memcpy(update.data(), &index, sizeof index);
        return update;
    }
    // `update` holds the index of the table's entry.
    Status combine(const Key&, std::span<const std::byte> old_value, std::span<const std::byte> update,
                   std::vector<std::byte>& out) override
    {
        size_t index;
        CW_ASSERT(update.size() == sizeof index);
        std::memcpy(&index, update.data(), sizeof index);
        BlockWindow window = entries_[index].window;
        BlockWindow stored;
        if (!old_value.empty()) {
            if (!decode_(old_value, stored))
                return Err::kCorrupt;
            if (!dropped_.empty())
                stored.mask &= ~dropped_[index];
            window.fill_from(stored);
        }
        if (window.mask != 0)
            out = encode_(window);
        return {};
    }

private:
    const std::span<const BlockTable::Entry> entries_;
    const std::span<const uint64_t> dropped_;
    const Encode encode_;
    const Decode decode_;
};

// Owned payloads of a batch of updates.
class UpdateList {
public:
    void put(const Key& key, std::vector<std::byte> value, TreeUpdate::Kind kind = TreeUpdate::Kind::kPut)
    {
        entries_.push_back({key, kind, std::move(value)});
    }
    void erase(const Key& key) { entries_.push_back({key, TreeUpdate::Kind::kErase, {}}); }
    [[nodiscard]] bool empty() const { return entries_.empty(); }

    Status apply_to(CowTree& tree, Combiner* combiner)
    {
        std::sort(entries_.begin(), entries_.end(),
                  [](const Entry& a, const Entry& b) { return a.key < b.key; });
        std::vector<TreeUpdate> updates;
        updates.reserve(entries_.size());
        for (const Entry& entry : entries_)
            updates.push_back({entry.key, entry.kind, entry.value});
        const Status status = tree.apply(updates, combiner);
        entries_.clear();
        return status;
    }

private:
    struct Entry {
        Key key;
        TreeUpdate::Kind kind;
        std::vector<std::byte> value;
    };
    std::vector<Entry> entries_;
};

// One commit's work on trees.
class TreeCommit {
public:
    TreeCommit(Committer& committer, Transaction& transaction, const Committed& base, Generation generation)
        : committer_(committer), transaction_(transaction), base_(base), generation_(generation)
    {
    }

    Status commit_file_tree(CommittedTrees& out);
    Status commit_checksum_tree(CommittedTrees& out);
    Status commit_remap_tree(CommittedTrees& out);
    Status commit_space_and_root(const VolumeCounters* counters, CommittedTrees& out);
    // Writes the nodes sealed so far into the regions taken so far.
    Status write_nodes(CommittedTrees& out);

private:
    Status assign(CowTree& tree, Stream stream);
    Status move_nodes(CowTree& tree);
    Status empty_groups(CowTree& tree, TreeIndex index);
    Status seal_windows(TreeIndex index, UpdateList& updates, WindowCombiner& combiner, TreeRoot& out);
    Status settle(CowTree& space, CowTree& root);
    void put_counters(const VolumeCounters& counters, UpdateList& updates);

    Committer& committer_;
    Transaction& transaction_;
    const Committed& base_;
    Generation generation_;
    std::vector<RowRegion> regions_;
    std::vector<Ref<const Node>> sealed_;
    uint64_t allocated_nodes_ = 0;
};

Status TreeCommit::assign(CowTree& tree, Stream stream)
{
    const bool between = transaction_.id.part > 0;
    const Generation read = committer_.store.timeline.view().committed->generation;
    for (const BlockRef& ref : tree.take_freed()) {
        const bool unread = between && read < ref.generation;
        CW_TRY(committer_.store.allocator.free_blocks(
            ref.address, kNodeBlocks, unread ? unread_frees(transaction_.id) : transaction_.id));
        note_freed(committer_.store, ref.address, kNodeBlocks, transaction_.id);
    }
    for (const VolumeAddress address : tree.take_released())
        CW_TRY(committer_.store.allocator.free_blocks(address, kNodeBlocks, transaction_.id));
    if (is_mutant(CommitMutant::kReuseBeforeDurable))
        committer_.store.allocator.release(transaction_.id, generation_);
    const size_t count = tree.unassigned_count();
    if (count == 0)
        return {};
    std::vector<RowRegion> regions;
    CW_TRY(committer_.store.allocator.allocate(stream, kNodeBlocks, count, transaction_.id, regions));
    std::vector<VolumeAddress> addresses;
    for (const RowRegion& region : regions) {
        for (uint64_t block = 0; block < region.used_blocks; block += kNodeBlocks)
            addresses.push_back(region.block_address(block));
        regions_.push_back(region);
    }
    tree.assign(addresses);
    allocated_nodes_ += count;
    return {};
}

Status TreeCommit::write_nodes(CommittedTrees& out)
{
    std::unordered_map<uint64_t, const Node*> by_address;
    for (const Ref<const Node>& node : sealed_)
        by_address.emplace(node->block_ref().address.value, node.get());
    std::vector<RegionWrite> writes(regions_.begin(), regions_.end());
    for (RegionWrite& write : writes)
        for (uint64_t block = 0; block < write.region.used_blocks; block += kNodeBlocks) {
            const auto at = by_address.find(write.region.block_address(block).value);
            if (at == by_address.end())
                continue;  // given back within the commit: zeros
            for (uint32_t i = 0; i < kNodeBlocks; ++i)
                write.blocks[block + i] = at->second->content().data() + size_t{i} * kBlockBytes;
        }
    CW_TRY(write_regions(committer_.store, transaction_, writes));
    regions_.clear();
    out.nodes.insert(out.nodes.end(), sealed_.begin(), sealed_.end());
    out.node_blocks = allocated_nodes_ * kNodeBlocks;
    sealed_.clear();
    return {};
}

// Nodes that keep rows from being free get new places, beside what changes.
Status TreeCommit::move_nodes(CowTree& tree)
{
    if (transaction_.moved_nodes == 0 || !base_.file_tree.root.address.valid())
        return {};
    const View view = committer_.store.timeline.view();
    std::vector<TreeUpdate> moves;
    for (const Key& key : find_node_moves(committer_.store, view, transaction_.moved_nodes))
        moves.push_back({key, TreeUpdate::Kind::kMove, {}});
    return tree.apply(moves, nullptr);
}

// Nodes in groups that are being emptied get new places, too.
Status TreeCommit::empty_groups(CowTree& tree, TreeIndex index)
{
    std::vector<TreeUpdate> moves;
    for (const Key& key : transaction_.moved_keys[static_cast<size_t>(index)])
        moves.push_back({key, TreeUpdate::Kind::kMove, {}});
    return moves.empty() ? Status() : tree.apply(moves, nullptr);
}

Status TreeCommit::commit_file_tree(CommittedTrees& out)
{
    CowTree tree(committer_.store.cache, base_.file_tree);
    CW_TRY(move_nodes(tree));
    CW_TRY(empty_groups(tree, TreeIndex::kFiles));
    const std::vector<ItemTable::Change> changes = transaction_.items.sorted();
    std::vector<TreeUpdate> updates;
    updates.reserve(changes.size());
    for (const ItemTable::Change& change : changes)
        updates.push_back(
            {change.key, change.erased ? TreeUpdate::Kind::kErase : TreeUpdate::Kind::kPut, change.value});
    CW_TRY(tree.apply(updates, nullptr));
    CW_TRY(assign(tree, Stream::kMetadata));
    CW_ASSIGN(out.file_tree, tree.seal(generation_, committer_.store.volume.identity().uuid, sealed_));
    // Under parity the checksum tree must learn of these blocks, so they are written before it. The profile
    // of new groups does not say where these went.
    const bool parity = std::any_of(regions_.begin(), regions_.end(), [&](const RowRegion& region) {
        return committer_.store.volume.array().group_at(region.group_address)->geometry.parity > 0;
    });
    return parity ? write_nodes(out) : Status();
}

// Updates for WindowCombiner over `entries`, of which the first is number `first` of its list.
void put_windows(std::span<const BlockTable::Entry> entries, size_t first, ItemType type, UpdateList& updates)
{
    for (size_t index = first; index < entries.size(); ++index)
        updates.put({entries[index].window_address.value, static_cast<uint8_t>(type), 0},
                    WindowCombiner::update_of(index), TreeUpdate::Kind::kCombine);
}

// Windows of which something goes are among `entries` then, perhaps with nothing new. Returns what goes of
// each.
std::vector<uint64_t> add_dropped(const BlockTable& table, std::vector<BlockTable::Entry>& entries)
{
    if (table.window_count() == 0)
        return {};
    const auto earlier = [](const BlockTable::Entry& a, const BlockTable::Entry& b) {
        return a.window_address < b.window_address;
    };
    const std::vector<BlockTable::Entry> going = table.sorted();
    const size_t count = entries.size();
    for (const BlockTable::Entry& entry : going)
        if (!std::binary_search(entries.begin(), entries.begin() + static_cast<ptrdiff_t>(count), entry,
                                earlier))
            entries.push_back({entry.window_address, {}});
    std::sort(entries.begin(), entries.end(), earlier);
    std::vector<uint64_t> dropped(entries.size());
    for (const BlockTable::Entry& entry : going) {
        const auto at = std::lower_bound(entries.begin(), entries.end(), entry, earlier);
        dropped[static_cast<size_t>(at - entries.begin())] = entry.window.mask;
    }
    return dropped;
}

Status TreeCommit::seal_windows(TreeIndex index, UpdateList& updates, WindowCombiner& combiner, TreeRoot& out)
{
    CowTree tree(committer_.store.cache, base_.tree(index));
    CW_TRY(empty_groups(tree, index));
    CW_TRY(updates.apply_to(tree, &combiner));
    CW_TRY(assign(tree, Stream::kSystem));
    CW_ASSIGN(out, tree.seal(generation_, committer_.store.volume.identity().uuid, sealed_));
    return {};
}

Status TreeCommit::commit_checksum_tree(CommittedTrees& out)
{
    UpdateList updates;
    std::vector<BlockTable::Entry> entries;
    if (!is_mutant(CommitMutant::kStaleChecksums))
        entries = transaction_.checksums.sorted();
    const std::vector<uint64_t> dropped = add_dropped(transaction_.dropped, entries);
    put_windows(entries, 0, ItemType::kChecksums, updates);
    for (const Key& key : transaction_.left_checksums)
        updates.erase(key);
    WindowCombiner combiner(entries, encode_checksum_window, decode_checksum_window, dropped);
    return seal_windows(TreeIndex::kChecksums, updates, combiner, out.checksum_tree);
}

Status TreeCommit::commit_remap_tree(CommittedTrees& out)
{
    out.remap_tree = base_.remap_tree;
    std::vector<BlockTable::Entry> entries = transaction_.moved_to.sorted();
    UpdateList updates;
    put_windows(entries, 0, ItemType::kMovedTo, updates);
    const size_t forward_count = entries.size();
    const std::vector<BlockTable::Entry> reverse = transaction_.moved_from.sorted();
    entries.insert(entries.end(), reverse.begin(), reverse.end());
    put_windows(entries, forward_count, ItemType::kMovedFrom, updates);
    if (entries.empty() && transaction_.moved_keys[static_cast<size_t>(TreeIndex::kRemap)].empty())
        return {};
    WindowCombiner combiner(entries, encode_remap_window, decode_remap_window);
    return seal_windows(TreeIndex::kRemap, updates, combiner, out.remap_tree);
}

void TreeCommit::put_counters(const VolumeCounters& counters, UpdateList& updates)
{
    updates.put(volume_key(), encode_volume_counters(counters));
}

// Recording an allocation changes the free-space tree, which allocates: repeats until nothing is new. Every
// round can only touch nodes that no round touched before, so it ends.
Status TreeCommit::settle(CowTree& space, CowTree& root)
{
    while (true) {
        // Its line in the root tree will change: that leaf gets its address here. Any other line of this size
        // will do until then.
        if (space.changed()) {
            UpdateList line;
            line.put(tree_root_key(kFreeSpaceTree), encode_tree_root({}));
            CW_TRY(line.apply_to(root, nullptr));
        }
        CW_TRY(assign(space, Stream::kSystem));
        CW_TRY(assign(root, Stream::kSystem));
        std::vector<SpaceWindow> windows;
        std::vector<GroupUsage> usages;
        CW_TRY(committer_.store.allocator.collect(transaction_.id, windows, usages));
        if ((windows.empty() && usages.empty()) || is_mutant(CommitMutant::kStaleFreeSpace))
            return {};
        UpdateList updates;
        for (const SpaceWindow& window : windows)
            updates.put({window.group_address.value, static_cast<uint8_t>(ItemType::kSpaceWindow),
                         window.first_stripe},
                        encode_space_window(window, generation_));
        for (const GroupUsage& usage : usages)
            updates.put(group_usage_key(usage.group_address), encode_group_usage(usage));
        CW_TRY(updates.apply_to(space, nullptr));
    }
}

Status TreeCommit::commit_space_and_root(const VolumeCounters* counters, CommittedTrees& out)
{
    const Uuid& uuid = committer_.store.volume.identity().uuid;
    CowTree space(committer_.store.cache, base_.free_space_tree);
    CowTree root(committer_.store.cache, {kRootTree, committer_.store.volume.superblock().root});
    UpdateList updates;
    if (counters != nullptr)
        put_counters(*counters, updates);
    updates.put(tree_root_key(kFirstFileTree), encode_tree_root(out.file_tree.root));
    updates.put(tree_root_key(kChecksumTree), encode_tree_root(out.checksum_tree.root));
    updates.put(tree_root_key(kFreeSpaceTree), encode_tree_root(base_.free_space_tree.root));
    if (out.remap_tree.root.address.valid() || base_.remap_tree.root.address.valid())
        updates.put(tree_root_key(kRemapTree), encode_tree_root(out.remap_tree.root));
    CW_TRY(updates.apply_to(root, nullptr));
    for (const Key& key : transaction_.left_windows)
        updates.erase(key);
    CW_TRY(updates.apply_to(space, nullptr));
    CW_TRY(empty_groups(space, TreeIndex::kFreeSpace));
    CW_TRY(settle(space, root));
    CW_ASSIGN(out.free_space_tree, space.seal(generation_, uuid, sealed_));
    // Same size as the line it replaces, in a leaf that is new already: allocates nothing.
    updates.put(tree_root_key(kFreeSpaceTree), encode_tree_root(out.free_space_tree.root));
    CW_TRY(updates.apply_to(root, nullptr));
    CW_ASSERT(root.unassigned_count() == 0);
    CW_ASSIGN(const TreeRoot sealed_root, root.seal(generation_, uuid, sealed_));
    out.root = sealed_root.root;
    return {};
}

}  // namespace

Status commit_trees(Committer& committer, Transaction& transaction, const Committed& base,
                    const VolumeCounters* counters, Generation generation, CommittedTrees& out)
{
    TreeCommit commit(committer, transaction, base, generation);
    CW_TRY(commit.commit_file_tree(out));
    CW_TRY(commit.commit_checksum_tree(out));
    CW_TRY(commit.commit_remap_tree(out));
    CW_TRY(commit.commit_space_and_root(counters, out));
    return commit.write_nodes(out);
}

}  // namespace cowraid
