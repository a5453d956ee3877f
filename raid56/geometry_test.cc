// SPDX-License-Identifier: MIT
#include "raid56/geometry.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "format/profile.h"

using namespace cowraid;

namespace {

struct Layout {
    uint32_t k, m, copies, sets;
};

constexpr Layout kLayouts[] = {
    {1, 0, 1, 1}, {1, 0, 1, 5}, {1, 0, 2, 1}, {1, 0, 3, 1},  {1, 0, 4, 1},  {1, 0, 2, 2},  {1, 0, 2, 3},
    {1, 0, 2, 8}, {1, 1, 1, 1}, {2, 1, 1, 1}, {3, 1, 1, 1},  {7, 1, 1, 1},  {15, 1, 1, 1}, {1, 2, 1, 1},
    {2, 2, 1, 1}, {3, 2, 1, 1}, {6, 2, 1, 1}, {14, 2, 1, 1}, {40, 2, 1, 1},
};

constexpr uint32_t kChunks[] = {4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576};

Geometry make(const Layout& layout, uint32_t chunk_bytes, uint64_t stripes)
{
    return {.data_columns = layout.k,
            .parity = layout.m,
            .copies = layout.copies,
            .sets = layout.sets,
            .chunk_bytes = chunk_bytes,
            .column_bytes = stripes * chunk_bytes};
}

}  // namespace

TEST_CASE("every block address is one place, and every place one address")
{
    uint64_t checked = 0;
    for (const Layout& layout : kLayouts) {
        for (const uint32_t chunk_bytes : kChunks) {
            const uint64_t stripes = chunk_bytes <= 65536 ? layout.k + layout.m + 3 : 3;
            const Geometry geometry = make(layout, chunk_bytes, stripes);
            const uint64_t blocks = geometry.data_blocks() + layout.m * geometry.row_count();
            bool good = true;
            uint64_t offset = 0;
            for (uint64_t block = 0; block < blocks; ++block, offset += kBlockBytes) {
                const BlockPlace place = place_of(geometry, offset);
                good = good && place.stripe < geometry.stripe_count() && place.row < geometry.rows() &&
                       place.column < layout.k + layout.m && offset_of(geometry, place) == offset;
                // Injective by offset_of(); data before parity, as format/group_map_codec.h says.
                good = good && (place.column < layout.k) == (block < geometry.data_blocks());
            }
            CHECK(good);
            checked += blocks;
        }
    }
    CHECK(checked > 100000);
}

TEST_CASE("addresses run down a chunk, along the stripe, then parity column by column")
{
    const Geometry geometry = make({3, 2, 1, 1}, 16384, 10);
    CHECK(place_of(geometry, 0) == BlockPlace{0, 0, 0});
    CHECK(place_of(geometry, 4096) == BlockPlace{0, 0, 1});
    CHECK(place_of(geometry, 16384) == BlockPlace{0, 1, 0});
    CHECK(place_of(geometry, 3 * 16384) == BlockPlace{1, 0, 0});
    const uint64_t data_bytes = 3 * geometry.column_bytes;
    CHECK(place_of(geometry, data_bytes) == BlockPlace{0, 3, 0});
    CHECK(place_of(geometry, data_bytes + 2 * 16384 + 4096) == BlockPlace{2, 3, 1});
    CHECK(place_of(geometry, data_bytes + geometry.column_bytes) == BlockPlace{0, 4, 0});
    // A parity block's address is its place in its own column: the documented formula.
    for (uint32_t p = 0; p < 2; ++p)
        for (uint64_t at = 0; at < geometry.column_bytes; at += kBlockBytes)
            CHECK(column_offset(geometry, place_of(geometry, (3 + p) * geometry.column_bytes + at)) == at);
}

TEST_CASE("a stripe uses every column of its set exactly once, and its blocks share one column offset")
{
    for (const Layout& layout : kLayouts) {
        const Geometry geometry = make(layout, 65536, 3 * (layout.k * layout.copies + layout.m) + 1);
        for (uint64_t stripe = 0; stripe < geometry.stripe_count(); ++stripe) {
            std::set<uint32_t> used;
            for (uint32_t column = 0; column < layout.k + layout.m; ++column)
                for (uint32_t copy = 0; copy < layout.copies; ++copy)
                    used.insert(group_column(geometry, stripe, column, copy));
            CHECK(used.size() == geometry.columns());
            // Of the set whose turn it is.
            const uint64_t set = stripe % layout.sets;
            CHECK(*used.begin() == set * geometry.columns());
            CHECK(*used.rbegin() == (set + 1) * geometry.columns() - 1);
            CHECK(column_offset(geometry, {stripe, layout.k, 15}) ==
                  stripe / layout.sets * 65536 + 15 * 4096);
        }
    }
}

TEST_CASE("places on members are distinct: (group column, column offset) is a bijection too")
{
    for (const Layout& layout : kLayouts) {
        const Geometry geometry = make(layout, 8192, 2 * (layout.k * layout.copies + layout.m) + 1);
        const uint64_t column_blocks = geometry.column_bytes / kBlockBytes;
        const uint32_t columns = geometry.columns() * layout.sets;
        std::vector<uint32_t> hits(columns * column_blocks);
        const uint64_t span = (geometry.data_columns * layout.sets + layout.m) * geometry.column_bytes;
        for (uint64_t offset = 0; offset < span; offset += kBlockBytes) {
            const BlockPlace place = place_of(geometry, offset);
            for (uint32_t copy = 0; copy < layout.copies; ++copy) {
                const uint32_t column = group_column(geometry, place.stripe, place.column, copy);
                REQUIRE(column < columns);
                REQUIRE(column_offset(geometry, place) < geometry.column_bytes);
                ++hits[column * column_blocks + column_offset(geometry, place) / kBlockBytes];
            }
        }
        CHECK(std::vector<uint32_t>(hits.size(), 1) == hits);
    }
}

TEST_CASE("chunks of raid0 and raid10 take the sets in turn, and a pair holds the same")
{
    const Geometry raid0 = make({1, 0, 1, 3}, 8192, 10);
    for (uint64_t offset = 0; offset < 30 * 8192; offset += kBlockBytes) {
        const BlockPlace place = place_of(raid0, offset);
        CHECK(group_column(raid0, place.stripe, 0) == offset / 8192 % 3);
        CHECK(column_offset(raid0, place) == offset / 8192 / 3 * 8192 + offset % 8192);
    }
    const Geometry raid10 = make({1, 0, 2, 3}, 8192, 10);
    uint32_t first_copies[6] = {};
    for (uint64_t stripe = 0; stripe < raid10.stripe_count(); ++stripe) {
        const uint32_t one = group_column(raid10, stripe, 0, 0);
        const uint32_t other = group_column(raid10, stripe, 0, 1);
        CHECK(std::min(one, other) == stripe % 3 * 2);
        CHECK(std::max(one, other) == stripe % 3 * 2 + 1);
        ++first_copies[one];
    }
    for (const uint32_t count : first_copies)
        CHECK(count == 5);
}

TEST_CASE("parity visits every group column equally often")
{
    const Geometry geometry = make({6, 2, 1, 1}, 65536, 80);
    std::vector<uint32_t> parity(8);
    for (uint64_t stripe = 0; stripe < 80; ++stripe)
        for (uint32_t column = 6; column < 8; ++column)
            ++parity[group_column(geometry, stripe, column)];
    CHECK(parity == std::vector<uint32_t>(8, 20));
}

TEST_CASE("columns beyond 4 GiB and stripes beyond 2^32 do not wrap")
{
    const Geometry geometry = make({14, 2, 1, 1}, 4096, uint64_t{1} << 33);
    const BlockPlace far{(uint64_t{1} << 33) - 1, 13, 0};
    CHECK(place_of(geometry, offset_of(geometry, far)) == far);
    CHECK(offset_of(geometry, far) == 14 * geometry.column_bytes - 4096);
    const BlockPlace far_parity{(uint64_t{1} << 33) - 1, 15, 0};
    CHECK(place_of(geometry, offset_of(geometry, far_parity)) == far_parity);
    CHECK(group_column(geometry, far.stripe, 15) == (15 + 15) % 16);
}

TEST_CASE("the geometry of a group follows its profile")
{
    GroupRecord group;
    group.profile = ProfileId::kRaid6;
    group.chunk_bytes = 65536;
    group.data_columns = 4;
    group.column_bytes = 16 * kMiB;
    const Geometry raid6 = geometry_of(group);
    CHECK(raid6.columns() == 6);
    CHECK(raid6.parity == 2);
    CHECK(raid6.stripe_count() == 256);
    group.profile = ProfileId::kRaid1c3;
    group.data_columns = 1;
    CHECK(geometry_of(group).columns() == 3);
    CHECK(geometry_of(group).copies == 3);
    group.profile = ProfileId::kRaid10;
    group.data_columns = 4;
    const Geometry raid10 = geometry_of(group);
    CHECK(raid10.columns() == 2);
    CHECK(raid10.sets == 4);
    CHECK(raid10.stripe_count() == 4 * 256);
    CHECK(raid10.data_blocks() * kBlockBytes == group.data_bytes());
}
