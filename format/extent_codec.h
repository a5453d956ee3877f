// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "format/items.h"
#include "format/key.h"

namespace cowraid {

// Blocks of the largest file.
inline constexpr uint64_t kMaxFileBlocks = uint64_t{INT64_MAX} / kBlockBytes + 1;

// Longer extents would make every later trim rewrite more and gain nothing.
inline constexpr uint32_t kMaxExtentBlocks = 128 * kMiB / kBlockBytes;

// Blocks of a file that one compressed frame holds at most. None goes over a multiple of that in its file.
inline constexpr uint32_t kFrameBlocksMax = 32;

// Bytes of a frame that is kept in its item (an inline frame). More would take more room in nodes, of which
// there are copies, than in a block under parity.
inline constexpr uint32_t kInlineBytesMax = 2048;

// Blocks side by side, inside one block group.
struct StoredRun {
    VolumeAddress address;
    uint32_t block_count = 0;

    bool operator==(const StoredRun&) const = default;
};

struct FileExtent {
    uint64_t file_block = 0;
    uint32_t block_count = 0;
    ExtentKind kind = ExtentKind::kData;
    VolumeAddress address;  // of its first block, or the first of its frame; 0 where it has none
    Generation generation;
    Compression compression = Compression::kNone;
    uint32_t offset_blocks = 0;  // of its first block in what the frame holds
    std::vector<StoredRun> frame;  // where a compressed one is stored, in order; else empty
    std::vector<std::byte> inline_frame;  // the frame itself; empty where it is in blocks

    [[nodiscard]] uint64_t end() const { return file_block + block_count; }
    [[nodiscard]] bool compressed() const { return compression != Compression::kNone; }
    [[nodiscard]] bool is_inline() const { return compression == Compression::kZstdInline; }
    // Where in the file the frame began. An extent that is overwritten in its middle leaves two with the same
    // frame, whose blocks are in use as long as one of them is there. All of them lie in
    // [frame_start(), frame_start() + kFrameBlocksMax).
    [[nodiscard]] uint64_t frame_start() const { return file_block - offset_blocks; }
    [[nodiscard]] bool same_frame(const FileExtent& other) const;
    // Blocks of members that it refers to, parity not counted.
    [[nodiscard]] uint32_t stored_blocks() const;
    // What it adds to the blocks that its file has: an inline frame counts as one, because tools that copy
    // files take one with content and without blocks for a hole.
    [[nodiscard]] uint32_t counted_blocks() const { return is_inline() ? 1 : stored_blocks(); }
    // Where they are. None of a reserved extent.
    [[nodiscard]] std::vector<StoredRun> stored_runs() const;
    // The part from its block `skip` on, `count` blocks long.
    [[nodiscard]] FileExtent slice(uint64_t skip, uint64_t count) const;
};

Key extent_key(InodeNumber inode, uint64_t file_block);
ItemBytes encode_extent(const FileExtent& extent);
// kCorrupt for an extent that no file can have: empty, unaligned, an unknown kind or compression.
Result<FileExtent> decode_extent(uint64_t file_block, std::span<const std::byte> payload);

}  // namespace cowraid
