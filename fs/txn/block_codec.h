// SPDX-License-Identifier: MIT
// Windows of checksums and of moved blocks as items of their trees. Decoding validates: the payload comes
// from disk.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "fs/txn/block_table.h"

namespace cowraid {

// Checksums.
std::vector<std::byte> encode_checksum_window(const BlockWindow& window);
bool decode_checksum_window(std::span<const std::byte> payload, BlockWindow& out);

// Other addresses of blocks; 0, like no entry, is none. A window without any gives an empty payload, which no
// item has. Decoded windows have no zeros.
std::vector<std::byte> encode_remap_window(const BlockWindow& window);
bool decode_remap_window(std::span<const std::byte> payload, BlockWindow& out);

}  // namespace cowraid
