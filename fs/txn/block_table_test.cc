// SPDX-License-Identifier: MIT
#include "fs/txn/block_table.h"

#include <doctest/doctest.h>

using namespace cowraid;

TEST_CASE("a window is filled in with what older ones know")
{
    BlockTable table;
    const uint64_t values[] = {1, 2, 3};
    table.put({kChecksumWindowBytes - kBlockBytes}, values);
    CHECK(table.window_count() == 2);
    BlockWindow window;
    window.mask = 1;
    window.values[0] = 9;
    table.merge_into({kChecksumWindowBytes}, window);
    CHECK(window.mask == 3);
    CHECK(window.values[0] == 9);
    CHECK(window.values[1] == 3);
    const std::vector<BlockTable::Entry> all = table.sorted();
    REQUIRE(all.size() == 2);
    CHECK(all[0].window.mask == uint64_t{1} << 63);
    CHECK(all[0].window.values[63] == 1);
}
