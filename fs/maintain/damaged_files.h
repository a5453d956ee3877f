// SPDX-License-Identifier: MIT
// Which files hold blocks that no redundancy brings back. Blocks know no owner: a walk over the file tree
// tells, made when there are such blocks and somebody asks.
#pragma once

#include <string>
#include <vector>

#include "base/log_count.h"
#include "btree/check.h"
#include "btree/node_cache.h"
#include "fs/txn/store.h"

namespace cowraid {

struct DamagedFile {
    InodeNumber inode;
    std::vector<std::string>
        paths;  // from the root of the volume, each beginning with '/'; DamagedFileSearch: none
    uint64_t blocks = 0;
    ByteRange range;  // from the first of them to the last
};

// So many bytes of paths are named at a time, of all files together: a file may have 65,000 names of some
// 60,000 bytes.
inline constexpr size_t kDamagedPathBytesMax = 512 * 1024;

// All names of an inode, as `files` has them, as long as `bytes_left` suffices, from which they are taken,
// also those whose directory is not reached from the root within 256 levels. "inode N" for what is not named
// then, and for one without names that are.
std::vector<std::string> paths_of(NodeCache& cache, const TreeRoot& files, InodeNumber inode,
                                  size_t& bytes_left);

// A walk over one file tree, for check_tree(). end() comes last. No more blocks of extents are looked at than
// the members have: only crafted trees have more.
class DamagedFileSearch : public TreeVisitor {
public:
    // Both outlive the object; `view` pins the trees.
    DamagedFileSearch(const RemapLookup& remap, const View& view, uint64_t member_blocks)
        : remap_(remap), view_(view), blocks_left_(member_blocks)
    {
    }
    void node(const Node&) override { }
    void problem(const std::string&) override { }
    void item(const Key& key, std::span<const std::byte> payload) override;
    void end();

protected:
    // Neighbours, as blocks behind an address.
    struct LostBlocks {
        uint64_t first = 0, count = 0;
    };

private:
    // The first lost ones within so many blocks; count 0: none.
    virtual LostBlocks next_lost(VolumeAddress physical, uint64_t block_count) = 0;
    virtual void found(const DamagedFile& file) = 0;
    void add_lost(uint64_t file_block, uint64_t block_count);

    const RemapLookup& remap_;
    const View& view_;
    uint64_t blocks_left_;
    DamagedFile file_;  // whose extents passed by last
};

// A tree node that is lost. Of the file tree it had what belongs to these inodes, or a part of it.
inline constexpr uint64_t kToTheEnd = INT64_MAX;
struct DamagedNode {
    TreeIndex tree = TreeIndex::kFiles;
    InodeNumber first_inode, last_inode;
};

struct DamagedFiles {
    std::vector<DamagedFile> files;  // the first ones, by rising inode
    uint64_t file_count = 0;
    std::vector<DamagedNode> nodes;  // the first ones
    uint64_t node_count = 0;
};

// Whether a block of the list of damage is in use and cannot be read now. `memory`: of one block, which may
// be exchanged (Array::read()). No locks held.
bool is_lost(Store& store, VolumeAddress address, AlignedBuffer& memory);

// What the list of damage (Store::damage) means for files and trees, as of the last commit. No locks held.
// Reads the trees, unless the list is empty. At most `lines_max` files, and as many nodes, are named. With
// `after` only files of higher inodes are counted and named, and no nodes.
Result<DamagedFiles> find_damaged_files(Store& store, size_t lines_max, InodeNumber after = {0});
// Blocks of the list of damage, and those of them that are parts of tree nodes.
struct DamagedBlocks {
    uint64_t all = 0, of_nodes = 0;
};
DamagedBlocks damaged_blocks(Store& store);

}  // namespace cowraid
