// SPDX-License-Identifier: MIT
// xxh3-64 through the library's run-time dispatch (AVX2/AVX-512 where present).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/units.h"

namespace cowraid {

// Checksum of a byte range. Not authentication: an adversary can forge it.
Checksum checksum_of(std::span<const std::byte> bytes);
Checksum checksum_of(const void* data, size_t bytes);

// Seeded variant, for name hashes of directories.
uint64_t seeded_hash(const void* data, size_t bytes, uint64_t seed);

// Checksum of one block of zeros, the content of every pad.
Checksum zero_block_checksum();

}  // namespace cowraid
