// SPDX-License-Identifier: MIT
#include "base/malloc_release.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include "base/buffer.h"
#include "base/units.h"

using namespace cowraid;

#ifdef COWRAID_TCMALLOC

namespace {

// Bytes of memory that the process has, from the kernel.
uint64_t resident_bytes()
{
    FILE* file = fopen("/proc/self/statm", "re");
    REQUIRE(file != nullptr);
    unsigned long total = 0, resident = 0;
    CHECK(fscanf(file, "%lu %lu", &total, &resident) == 2);
    fclose(file);
    return uint64_t{resident} * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

TEST_CASE("malloc: blocks that are free go back to the kernel when asked, others keep their content")
{
    constexpr size_t kBlocks = 32768;  // 128 MiB
    AlignedBuffer kept(kBlockBytes);
    std::memset(kept.data(), 7, kept.size());
    const uint64_t before = resident_bytes();
    {
        std::vector<AlignedBuffer> blocks;
        for (size_t i = 0; i < kBlocks; ++i) {
            blocks.emplace_back(kBlockBytes);
            std::memset(blocks.back().data(), static_cast<int>(i), kBlockBytes);
        }
        CHECK(resident_bytes() - before >= kBlocks * kBlockBytes * 9 / 10);
    }
    malloc_release();
    CHECK(resident_bytes() < before + kBlocks * kBlockBytes / 4);
    CHECK(kept.data()[kBlockBytes - 1] == std::byte{7});
}

TEST_CASE("malloc: who takes pieces of what a large buffer left does not make the next one grow the process")
{
    constexpr size_t kRounds = 10, kLarge = 12 * kMiB, kSmall = 64 * kKiB, kSmallCount = 64;
    const uint64_t before = resident_bytes();
    std::vector<AlignedBuffer> kept;
    for (size_t round = 0; round < kRounds; ++round) {
        {
            AlignedBuffer large(kLarge);
            std::memset(large.data(), static_cast<int>(round), large.size());
        }
        for (size_t i = 0; i < kSmallCount; ++i) {
            kept.emplace_back(kSmall);
            std::memset(kept.back().data(), 1, kSmall);
        }
    }
    CHECK(malloc_bytes().held > 0);
    CHECK(resident_bytes() - before < kRounds * kSmallCount * kSmall + 2 * kLarge);
}

#endif
