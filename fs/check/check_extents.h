// SPDX-License-Identifier: MIT
// Extent items of one file after another.
#pragma once

#include "fs/check/check_passes.h"
#include "fs/files/extents.h"

namespace cowraid {

// What the extents of one file add up to, in blocks.
struct ExtentSums {
    uint64_t item_count = 0;
    uint64_t stored = 0;
    uint64_t reserved = 0;
    uint64_t stored_end = 0;  // one above the last stored block of the file
    uint64_t end = 0;  // one above the last mapped block
    uint64_t compressed_file_blocks = 0;
    uint64_t compressed_blocks = 0;
    FramesSeen frames;
};

// One item of inode `number`, in key order: its form, its place behind the one before, its blocks.
void check_extent(CheckContext& context, uint64_t number, const Key& key, std::span<const std::byte> payload,
                  ExtentSums& sums);

}  // namespace cowraid
