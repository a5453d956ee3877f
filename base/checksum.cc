// SPDX-License-Identifier: MIT
#include "base/checksum.h"

#if defined(__x86_64__)
#include <xxh_x86dispatch.h>
#define COWRAID_XXH3 XXH3_64bits_dispatch
#else
#include <xxhash.h>
#define COWRAID_XXH3 XXH3_64bits
#endif

namespace cowraid {

Checksum checksum_of(const void* data, size_t bytes)
{
    return COWRAID_XXH3(data, bytes);
}

Checksum checksum_of(std::span<const std::byte> bytes)
{
    return checksum_of(bytes.data(), bytes.size());
}

uint64_t seeded_hash(const void* data, size_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, bytes, seed);
}

Checksum zero_block_checksum()
{
    static const Checksum checksum = [] {
        static const std::byte zeros[kBlockBytes] = {};
        return checksum_of(zeros, sizeof zeros);
    }();
    return checksum;
}

}  // namespace cowraid
