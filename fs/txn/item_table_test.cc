// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include "format/items.h"
#include "fs/txn/item_table.h"

using namespace cowraid;

TEST_CASE("item table: unlogged changes are handed out once, as they are")
{
    ItemTable table;
    const auto key = [](uint64_t object) {
        return Key{object, static_cast<uint8_t>(ItemType::kXattr), 1};
    };
    table.put(key(1), ItemBytes(10));
    table.start_tracking();
    for (uint64_t object = 2; object < 200; ++object)
        table.put(key(object), ItemBytes(object));
    table.put(key(5), ItemBytes(1));
    table.erase(key(6));
    std::vector<ItemTable::Change> changes;
    REQUIRE(table.take_unlogged(1 << 20, changes));
    CHECK(changes.size() == 198);
    for (const ItemTable::Change& change : changes) {
        CHECK(change.erased == (change.key.object == 6));
        CHECK(change.value.size() == (change.key.object == 5 ? 1 : change.erased ? 0 : change.key.object));
    }
    changes.clear();
    CHECK(table.take_unlogged(0, changes));
    CHECK(changes.empty());
    table.put(key(7), ItemBytes(100));
    table.put(key(8), ItemBytes(100));
    CHECK_FALSE(table.take_unlogged(150, changes));
}
