// SPDX-License-Identifier: MIT
#include "fs/files/dirty_map.h"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "base/random.h"
#include "base/units.h"

using namespace cowraid;

namespace {

constexpr uint64_t kBlocks = 60;

DirtyExtent extent_of(uint32_t block_count, uint64_t mark)
{
    DirtyExtent extent{make_ref<SharedBuffer>(block_count * kBlockBytes), 0, block_count};
    for (uint32_t i = 0; i < block_count; ++i) {
        const uint64_t content = mark + i;
        std::memcpy(extent.block(i), &content, sizeof content);
    }
    return extent;
}

// 0: not dirty.
uint64_t content_of(const DirtyMap& map, uint64_t block)
{
    uint64_t content = 0;
    if (const std::byte* memory = map.find(block); memory != nullptr)
        std::memcpy(&content, memory, sizeof content);
    return content;
}

uint64_t buffer_blocks(const DirtyMap& map)
{
    uint64_t bytes = 0;
    for (const auto& [first, extent] : map.extents())
        bytes += extent.buffer->buffer.size();
    return bytes / kBlockBytes;
}

void require_equal(const DirtyMap& map, const std::vector<uint64_t>& model)
{
    uint64_t dirty = 0;
    for (uint64_t block = 0; block < kBlocks; ++block) {
        CAPTURE(block);
        REQUIRE(content_of(map, block) == model[block]);
        dirty += model[block] != 0;
    }
    REQUIRE(map.block_count() == dirty);
    uint64_t end = 0, in_extents = 0;
    for (const auto& [first, extent] : map.extents()) {
        REQUIRE(first >= end);
        REQUIRE(extent.block_count > 0);
        end = first + extent.block_count;
        in_extents += extent.block_count;
    }
    REQUIRE(in_extents == dirty);
    for (uint64_t block = 0; block < kBlocks; ++block) {
        const auto at = map.first_ending_after(block);
        uint64_t next = block;
        while (next < kBlocks && model[next] == 0)
            ++next;
        REQUIRE((at == map.extents().end()) == (next == kBlocks));
        if (next < kBlocks)
            REQUIRE((at->first <= next && at->first + at->second.block_count > next));
    }
}

}  // namespace

TEST_CASE("dirty map: the same blocks as in an array, whatever is put over and cut out")
{
    Prng prng(7);
    for (int round = 0; round < 300; ++round) {
        DirtyMap map;
        std::vector<uint64_t> model(kBlocks);
        uint64_t mark = 1;
        for (uint64_t step = prng.between(1, 40); step > 0; --step) {
            const uint64_t first = prng.below(kBlocks - 1);
            const uint64_t count = prng.between(1, std::min<uint64_t>(12, kBlocks - first));
            const bool puts = prng.chance(2, 3);
            uint64_t were = 0;
            for (uint64_t i = 0; i < count; ++i) {
                were += model[first + i] != 0;
                model[first + i] = puts ? mark + i : 0;
            }
            if (puts)
                REQUIRE(map.insert(first, extent_of(static_cast<uint32_t>(count), mark)) == count - were);
            else
                REQUIRE(map.erase(first, count) == were);
            mark += count;
            require_equal(map, model);
        }
    }
}

TEST_CASE("dirty map: remnants of large buffers do not keep them")
{
    constexpr uint32_t kLong = 40;
    DirtyMap map;
    std::vector<uint64_t> model(kBlocks, 0);
    // Each takes all but one block of the one before.
    for (uint64_t first = 0; first + kLong <= kBlocks; ++first) {
        const uint64_t mark = 1000 * (first + 1);
        map.insert(first, extent_of(kLong, mark));
        for (uint32_t i = 0; i < kLong; ++i)
            model[first + i] = mark + i;
        require_equal(map, model);
    }
    // From the other side, and from within.
    for (uint64_t first = kBlocks - kLong; first > 0; --first)
        map.insert(first - 1, extent_of(kLong, 5000));
    map.insert(3, extent_of(34, 6000));
    CHECK(buffer_blocks(map) * DirtyMap::kShareAfterInsert <= map.block_count() * 8);
    CHECK(map.block_count() == kBlocks);
}

TEST_CASE("dirty map: what is left of a buffer after an erasure does not keep it")
{
    struct Cut {
        uint64_t first, count;
    };
    for (const Cut cut : {Cut{10, 30}, Cut{0, 30}, Cut{5, 30}, Cut{20, 10}, Cut{39, 1}}) {
        CAPTURE(cut.first);
        DirtyMap map, flushed;
        std::vector<uint64_t> model(kBlocks, 0);
        for (DirtyMap* one : {&map, &flushed})
            one->insert(0, extent_of(40, 1000));
        for (uint64_t block = 0; block < 40; ++block)
            model[block] = block < cut.first || block >= cut.first + cut.count ? 1000 + block : 0;
        REQUIRE(map.erase(cut.first, cut.count) == cut.count);
        require_equal(map, model);
        CHECK(buffer_blocks(map) * DirtyMap::kShareAfterErase <= map.block_count() * 8);
        // Somebody else holds the buffer: nothing is copied.
        const Ref<SharedBuffer> whole = flushed.extents().begin()->second.buffer;
        REQUIRE(flushed.erase(cut.first, cut.count, 0) == cut.count);
        require_equal(flushed, model);
        for (const auto& [first, extent] : flushed.extents())
            CHECK(extent.buffer == whole);
    }
}
