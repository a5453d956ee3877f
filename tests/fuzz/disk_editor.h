// SPDX-License-Identifier: MIT
// Changes single integers of an unmounted volume and makes every checksum above them fit again, on every copy
// on every member: what is left to notice the change is what the values mean. Reads the format by itself,
// without the trees and the array that are under test.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "format/group_map_codec.h"
#include "format/node.h"
#include "raid56/geometry.h"
#include "sim/sim_device.h"
#include "tests/fuzz/field_table.h"
#include "tests/fuzz/log_blocks.h"

namespace cowraid::test {

// One instance of a structure.
struct Target {
    enum class Home : uint8_t { kSuperblock, kMap, kNode, kLog };
    std::string structure;
    Home home = Home::kNode;
    size_t node = 0;  // kNode, kLog: which one
    size_t offset = 0;  // in the superblock with its member lines, the map, the node or the image of the log
    size_t tail_bytes = 0;  // what follows the structure: a name, checksums, a bitmap
};

class DiskEditor {
public:
    // Reads superblock, map and every node. Aborts on a volume that is not as the format says.
    explicit DiskEditor(Members& members);
    // For members that hold the same as those of `other`.
    DiskEditor(const DiskEditor& other, Members& members);

    // Leaves nothing but the newest superblock in the rings: a refused one has nothing to fall back to.
    void forget_history();
    [[nodiscard]] std::vector<Target> targets(const std::string& structure) const;
    [[nodiscard]] uint64_t value(const Target& target, const Leaf& leaf) const;
    // `agree`: what repeats the value above the structure is changed with it.
    struct How {
        bool agree = false;
    };
    void overwrite(const Target& target, const Leaf& leaf, uint64_t value, const How& how);
    // Whether `agree` makes a difference.
    [[nodiscard]] static bool is_repeated(const Leaf& leaf);
    // Whether the target is part of the free-space tree.
    [[nodiscard]] bool describes_space(const Target& target) const;

    // For cases of several fields: the bytes of what is to be changed, then seal().
    Bytes& change_superblock() { return superblock_; }  // with the member lines; may become longer
    Bytes& change_map();
    Bytes& change_node(size_t index);
    RawLog& change_log(size_t index);
    // Stores what was changed, with checksums that fit. The map goes where the member lines say, too.
    void seal();
    [[nodiscard]] Members& members() { return members_; }
    [[nodiscard]] const Superblock& superblock() const { return decoded_; }
    [[nodiscard]] const GroupMap& groups() const { return groups_; }
    // Indices of the nodes of a tree; file trees are numbers from kFirstFileTree on.
    [[nodiscard]] std::vector<size_t> nodes_of(uint64_t tree_id) const;
    [[nodiscard]] const Bytes& node(size_t index) const { return nodes_[index].image; }
    [[nodiscard]] std::span<const RawLog> logs() const { return logs_; }

private:
    struct RawNode {
        BlockRef ref;
        uint64_t tree_id = 0;
        size_t parent = SIZE_MAX;  // index into nodes_; none: the superblock points here
        size_t pointer = 0;  // offset of the DiskBlockRef in the parent (or in the superblock)
        Bytes image;
    };
    struct Spot {
        SimDevice* member;
        uint64_t offset;
    };

    void read_superblock();
    void read_map();
    void read_tree(const DiskBlockRef& ref, uint64_t tree_id, size_t parent, size_t pointer);
    void read_trees_below(size_t root_node);

    [[nodiscard]] const Bytes& image_of(const Target& target) const;
    void node_targets(size_t index, const std::string& structure, std::vector<Target>& out) const;
    void map_targets(const std::string& structure, std::vector<Target>& out) const;

    enum class Stamp : uint8_t { kFit, kKeep };
    void store_node(size_t index);
    void store_map(Stamp stamp);
    void store_superblock(Stamp stamp);
    void store_map_where_told();
    void agree_above(const Target& target, const Leaf& leaf, uint64_t value);

    [[nodiscard]] const GroupRecord& group_of(VolumeAddress address) const;
    [[nodiscard]] Spot spot(const GroupRecord& group, const BlockPlace& place, uint32_t copy) const;
    void read_block(VolumeAddress address, std::byte* out) const;
    void write_block(VolumeAddress address, std::span<const std::byte> content);
    void restore_row(const GroupRecord& group, const BlockPlace& place);
    void note_checksum(VolumeAddress address, std::span<const std::byte> content);
    bool note_checksum_in(size_t node, VolumeAddress address, Checksum checksum);

    Members& members_;
    Bytes superblock_;  // of the first member, with the member lines
    Superblock decoded_;
    Bytes map_;
    GroupMap groups_;
    std::vector<RawNode> nodes_;  // parents before children
    std::vector<RawLog> logs_;  // that are live
    bool map_changed_ = false;
    std::vector<bool> node_changed_, log_changed_;
};

}  // namespace cowraid::test
