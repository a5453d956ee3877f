// SPDX-License-Identifier: MIT
#include "fs/commit/mount.h"

#include <unordered_map>

#include "base/out_of_memory.h"
#include "format/items.h"
#include "format/member_layout.h"
#include "fs/commit/committer.h"
#include "fs/txn/group_planning.h"

namespace cowraid {

namespace {

Status lookup_root(NodeCache& cache, const TreeRoot& root, TreeRoot& tree)
{
    ItemBytes payload;
    CW_TRY(tree_lookup(cache, root, tree_root_key(tree.tree_id), payload));
    CW_ASSIGN(tree.root, decode_tree_root(payload));
    return block_ref_valid(tree.root, root.root.generation) ? Status() : Err::kCorrupt;
}

Status read_usages(NodeCache& cache, const TreeRoot& tree, std::vector<GroupUsage>& usages)
{
    const Key first = group_usage_key({0});
    TreeCursor cursor(cache, tree);
    CW_TRY(cursor.seek(first));
    while (cursor.valid() && cursor.key().object == first.object && cursor.key().type == first.type) {
        CW_ASSIGN(const GroupUsage usage, decode_group_usage({cursor.key().offset}, cursor.payload()));
        usages.push_back(usage);
        CW_TRY(cursor.next());
    }
    return {};
}

// What can be said of the counters without reading all inodes. A number that was given already would be given
// again; sums must not wrap.
Status validate_counters(NodeCache& cache, Volume& volume, const RootContent& content)
{
    const VolumeCounters& counters = content.counters;
    if (counters.next_inode <= kRootInode || counters.next_inode > kMaxInode ||
        counters.inode_count > counters.next_inode - kRootInode ||
        counters.reserved_blocks > raw_blocks(volume.superblock().members))
        return Err::kCorrupt;
    TreeCursor last(cache, content.committed->file_tree);
    CW_TRY(last.seek_before(kMaxKey));
    return last.valid() && last.key().object >= counters.next_inode ? Err::kCorrupt : Err::kOk;
}

Status read_root_tree(Volume& volume, RootContent& content)
{
    constexpr uint64_t kCacheBytes = 4 * kMiB;
    ArrayNodeReader reader(volume.array());
    NodeCache cache(reader, volume.identity().uuid, kCacheBytes);
    const TreeRoot root{kRootTree, volume.superblock().root};
    Ref<Committed> committed = make_ref<Committed>();
    committed->generation = volume.superblock().generation;
    committed->root_tree = root;
    CW_TRY(lookup_root(cache, root, committed->file_tree));
    CW_TRY(lookup_root(cache, root, committed->checksum_tree));
    CW_TRY(lookup_root(cache, root, committed->free_space_tree));
    // Made with its first entry.
    if (const Status found = lookup_root(cache, root, committed->remap_tree); found.err() != Err::kNotFound)
        CW_TRY(found);
    if (committed->remap_tree.root.address.valid() && !volume.may_have_moved_blocks())
        return Err::kCorrupt;
    ItemBytes payload;
    CW_TRY(tree_lookup(cache, root, volume_key(), payload));
    CW_ASSIGN(content.counters, decode_volume_counters(payload));
    content.committed = Ref<const Committed>(committed.get());
    CW_TRY(validate_counters(cache, volume, content));
    return read_usages(cache, committed->free_space_tree, content.usages);
}

}  // namespace

Result<RootContent> read_root(Volume& volume, std::string& why)
{
    RootContent content;
    const Status status = read_root_tree(volume, content);
    if (!status.ok()) {
        why = std::string("the root tree cannot be read: ") + err_text(status.err());
        return status;
    }
    return content;
}

void Committer::load(const RootContent& root)
{
    store.allocator.set_memory_limit(store.options.memory_bytes / 8);
    store.volume.array().keep_buffers(store.options.memory_bytes / 32);
    std::unordered_map<uint64_t, GroupUsage> usages;
    for (const GroupUsage& usage : root.usages)
        usages.emplace(usage.group_address.value, usage);
    for (const GroupRecord& group : store.volume.map().groups) {
        const Geometry geometry = geometry_of(group);
        GroupUsage usage{group.address, 0, geometry.row_count(), geometry.stripe_count()};
        if (const auto at = usages.find(group.address.value); at != usages.end())
            usage = at->second;
        const bool emptying = (group.flags & kGroupEmptying) != 0;
        store.allocator.add_group(group, usage,
                                  emptying ? Allocator::GroupState::kClosed : Allocator::GroupState::kOpen);
    }
    balance.avoid_groups();
    sort_degraded_groups(store);
    store.number_commits_from(Generation{store.volume.superblock().tree_commits}.next());
    names.next_inode = root.counters.next_inode;
    names.inode_count = root.counters.inode_count;
    files.reserved_blocks = static_cast<int64_t>(root.counters.reserved_blocks);
    store.ledger.reserve_data_anyway(root.counters.reserved_blocks);
    files.compression_counted = root.counters.compression_counted || !store.volume.may_have_frames();
    if (root.counters.compression_counted) {
        files.compressed_file_blocks = root.counters.compressed_file_blocks;
        files.compressed_blocks = root.counters.compressed_blocks;
    }
    refresh_budget(store);
}

}  // namespace cowraid
