// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "base/units.h"
#include "format/items.h"
#include "format/key.h"

namespace cowraid {

// Blocks of the largest file.
inline constexpr uint64_t kMaxFileBlocks = uint64_t{INT64_MAX} / kBlockBytes + 1;

// Longer extents would make every later trim rewrite more and gain nothing.
inline constexpr uint32_t kMaxExtentBlocks = 128 * kMiB / kBlockBytes;

struct FileExtent {
    uint64_t file_block = 0;
    uint32_t block_count = 0;
    ExtentKind kind = ExtentKind::kData;
    VolumeAddress address;  // of its first block; 0 for kReserved
    Generation generation;

    [[nodiscard]] uint64_t end() const { return file_block + block_count; }
};

Key extent_key(InodeNumber inode, uint64_t file_block);
ItemBytes encode_extent(const FileExtent& extent);
// kCorrupt for an extent that no file can have: empty, unaligned, an unknown kind or compression.
Result<FileExtent> decode_extent(uint64_t file_block, std::span<const std::byte> payload);

}  // namespace cowraid
