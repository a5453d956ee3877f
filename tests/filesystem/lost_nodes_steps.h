// SPDX-License-Identifier: MIT
// What tests of lost tree nodes share: trees with many nodes, and where copies of these are.
#pragma once

#include <set>

#include "raid56/array_state.h"
#include "tests/filesystem/scrub_steps.h"

namespace cowraid::test {

inline constexpr VolumeShape kTwoCopies{4, 160 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * kKiB};
inline constexpr int kFolders = 8, kFilesEach = 300;

inline std::string long_name(int number)
{
    return std::string(200, 'n') + std::to_string(number);
}

// Folders with names that fill nodes of the file tree.
inline void make_folders(Filesystem& fs)
{
    for (int folder = 0; folder < kFolders; ++folder) {
        const std::string name = "folder" + std::to_string(folder);
        const InodeNumber inode = fs.names.make_node(kRoot, name, S_IFDIR | 0755, 0, {})->inode;
        for (int file = 0; file < kFilesEach; ++file)
            REQUIRE(fs.names.make_node(inode, long_name(file), S_IFREG | 0644, 0, {}).ok());
        REQUIRE(fs.step(true).ok());
    }
}

// Of the subtree, leaves or all of its nodes, by rising keys.
enum class Nodes : uint8_t { kLeaves, kAll };
inline void collect_nodes(Filesystem& fs, uint64_t tree_id, const BlockRef& ref, Nodes which,
                          std::vector<BlockRef>& out)
{
    const Result<Ref<const Node>> node = fs.store.cache.get(ref, tree_id, -1);
    REQUIRE(node.ok());
    if ((*node)->is_leaf() || which == Nodes::kAll)
        out.push_back(ref);
    for (uint32_t child = 0; !(*node)->is_leaf() && child < (*node)->item_count(); ++child)
        collect_nodes(fs, tree_id, (*node)->child(child), which, out);
}

// So many attributes that the file tree has three levels.
inline void make_three_levels(Filesystem& fs, Prng& prng)
{
    constexpr int kFiles = 1200;
    const std::vector<std::byte> value = random_content(prng, 3000);
    for (int file = 0; file < kFiles; ++file) {
        const auto made = fs.names.make_node(kRoot, "with" + std::to_string(file), S_IFREG | 0644, 0, {});
        REQUIRE(made.ok());
        REQUIRE(fs.names.set_xattr(made->inode, "user.large", value, 0).ok());
        fs.names.forget(made->inode, 1);
    }
    REQUIRE(fs.step(true).ok());
}

enum class Level : uint8_t { kLeaf, kInner, kRoot };

// Nodes of that level, if there are any.
inline std::vector<BlockRef> nodes_of(Filesystem& fs, TreeIndex index, Level level)
{
    const TreeRoot tree = fs.store.timeline.view().committed->tree(index);
    if (level == Level::kRoot)
        return {tree.root};
    std::vector<BlockRef> nodes, leaves;
    collect_nodes(fs, tree.tree_id, tree.root, Nodes::kLeaves, leaves);
    collect_nodes(fs, tree.tree_id, tree.root, Nodes::kAll, nodes);
    if (level == Level::kLeaf)
        return leaves;
    std::set<uint64_t> others = {tree.root.address.value};
    for (const BlockRef& leaf : leaves)
        others.insert(leaf.address.value);
    std::erase_if(nodes, [&](const BlockRef& node) { return others.contains(node.address.value); });
    return nodes;
}

// Of the file tree, by rising keys.
inline std::vector<BlockRef> file_leaves(Filesystem& fs)
{
    std::vector<BlockRef> leaves;
    const TreeRoot tree = fs.store.timeline.view().committed->file_tree;
    collect_nodes(fs, tree.tree_id, tree.root, Nodes::kLeaves, leaves);
    REQUIRE(leaves.size() > 20);
    return leaves;
}

// A copy of a node's first block.
struct NodeCopy {
    uint32_t member;
    uint64_t offset;
    std::vector<std::byte> content;
};

inline std::vector<NodeCopy> copies_of(Filesystem& fs, SimVolume& volume, const BlockRef& node)
{
    std::vector<NodeCopy> copies;
    const Ref<const ArrayGroup> group = fs.volume->array().group_at(node.address);
    const BlockPlace place = place_of(group->geometry, node.address - group->record.address);
    for (uint32_t copy = 0; copy < group->geometry.copies; ++copy) {
        const uint32_t column = group_column(group->geometry, place.stripe, place.column, copy);
        copies.push_back({group->record.columns[column].member.value - 1,
                          group->locate(column, column_offset(group->geometry, place)).offset.value,
                          std::vector<std::byte>(kBlockBytes)});
        volume.member(copies.back().member).peek(copies.back().offset, copies.back().content);
    }
    return copies;
}

}  // namespace cowraid::test
