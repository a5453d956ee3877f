// SPDX-License-Identifier: MIT
// Windows of checksums, of moved blocks and of free space as items of their trees. Decoding validates: the
// payload comes from disk.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "format/items.h"

namespace cowraid {

struct BlockWindow {
    uint64_t mask = 0;  // bit i: values[i] is set
    std::array<uint64_t, kChecksumWindowBlocks> values{};

    // Fills in what `older` knows and this one does not.
    void fill_from(const BlockWindow& older);
};

// Checksums.
std::vector<std::byte> encode_checksum_window(const BlockWindow& window);
bool decode_checksum_window(std::span<const std::byte> payload, BlockWindow& out);

// Other addresses of blocks; 0, like no entry, is none. A window without any gives an empty payload, which no
// item has. Decoded windows have no zeros.
std::vector<std::byte> encode_remap_window(const BlockWindow& window);
bool decode_remap_window(std::span<const std::byte> payload, BlockWindow& out);

// One window of a group's allocation state as a commit must record it (format/items.h DiskSpaceWindow).
struct SpaceWindow {
    VolumeAddress group_address;
    uint64_t first_stripe = 0;
    Generation last_write;  // of released commits
    bool written = false;  // the current commit, or one before it that is not released yet, wrote into it
    uint32_t block_count = 0;
    uint32_t used_count = 0;
    std::vector<uint8_t> bitmap;  // empty when used_count is 0 or block_count
};

// Free space.
std::vector<std::byte> encode_space_window(const SpaceWindow& window, Generation committing);
Result<SpaceWindow> decode_space_window(VolumeAddress group_address, uint64_t first_stripe,
                                        std::span<const std::byte> payload);

}  // namespace cowraid
