// SPDX-License-Identifier: MIT
#include "base/large_memory.h"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "base/random.h"
#include "base/units.h"

using namespace cowraid;

namespace {

struct Piece {
    std::byte* memory;
    size_t bytes;
    uint8_t mark;
};

bool intact(const Piece& piece)
{
    for (size_t at = 0; at < piece.bytes; at += 509)
        if (piece.memory[at] != std::byte{piece.mark})
            return false;
    return piece.memory[piece.bytes - 1] == std::byte{piece.mark};
}

}  // namespace

TEST_CASE("large memory: allocations of all sizes are aligned and do not overlap")
{
    Prng prng(17);
    std::vector<Piece> pieces;
    for (int step = 0; step < 3000; ++step) {
        if (pieces.size() < 60 && prng.chance(3, 5)) {
            const size_t bytes = prng.between(kLargeBytesMin, kLargeBytesMax);
            std::byte* memory = large_allocate(bytes);
            REQUIRE(memory != nullptr);
            CHECK(reinterpret_cast<uintptr_t>(memory) % kBlockBytes == 0);
            const auto mark = static_cast<uint8_t>(step);
            std::memset(memory, mark, bytes);
            pieces.push_back({memory, bytes, mark});
        } else if (!pieces.empty()) {
            const size_t index = prng.below(pieces.size());
            CHECK(intact(pieces[index]));
            large_free(pieces[index].memory, pieces[index].bytes);
            pieces[index] = pieces.back();
            pieces.pop_back();
        }
    }
    for (const Piece& piece : pieces) {
        CHECK(intact(piece));
        large_free(piece.memory, piece.bytes);
    }
    large_trim();
    large_trim();
    CHECK(large_bytes_held() == 0);
}

TEST_CASE("large memory: what was needed since the last trim is kept, the rest goes back")
{
    std::vector<std::byte*> memory;
    for (int count = 0; count < 8; ++count)
        memory.push_back(large_allocate(1 * kMiB));
    CHECK(large_bytes_held() == 8 * kMiB);
    for (std::byte* one : memory)
        large_free(one, 1 * kMiB);
    large_trim();  // all were in use since the last one
    CHECK(large_bytes_held() == 8 * kMiB);
    std::byte* kept = large_allocate(200 * kKiB);
    large_trim();
    CHECK(large_bytes_held() == 2 * kMiB);
    large_free(kept, 200 * kKiB);
    large_trim();
    large_trim();
    CHECK(large_bytes_held() == 0);
}
