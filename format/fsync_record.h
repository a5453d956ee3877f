// SPDX-License-Identifier: MIT
// Records of the fsync log between disk and memory. docs/FORMAT.md, section 11, explains them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "format/fsync_log.h"
#include "format/key.h"
#include "format/tree_codec.h"

namespace cowraid {

// Blocks of a file: their content, or null for blocks that are not dirty any more.
struct LoggedBlocks {
    InodeNumber inode;
    uint64_t first_block = 0;
    uint64_t block_count = 0;
    const std::byte* content = nullptr;
};

class FsyncRecordEncoder {
public:
    FsyncRecordEncoder();

    // False: the record would be too long; it is of no use then.
    [[nodiscard]] bool add_item(const ItemChange& change);
    [[nodiscard]] bool add_blocks(const LoggedBlocks& blocks);
    // Bytes that can still be added.
    [[nodiscard]] uint64_t room() const { return kMaxFsyncRecordBytes - bytes_.size(); }
    std::vector<std::byte> finish(const VolumeCounters& counters);

private:
    bool add(const DiskFsyncEntry& entry, const std::byte* payload, uint64_t payload_bytes);

    std::vector<std::byte> bytes_;
    uint32_t entry_count_ = 0;
};

// Points into the bytes it was decoded from.
struct FsyncRecord {
    struct Item {
        Key key;
        bool erased = false;
        std::span<const std::byte> payload;
    };
    VolumeCounters counters;
    std::vector<Item> items;
    std::vector<LoggedBlocks> blocks;
};

// kCorrupt: rotten or hostile. Keys are of a file tree, inode numbers below next_inode, inodes and extents
// such as decode_inode() and decode_extent() take.
Result<FsyncRecord> decode_fsync_record(std::span<const std::byte> bytes);

}  // namespace cowraid
