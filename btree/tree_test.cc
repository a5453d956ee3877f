// SPDX-License-Identifier: MIT
// Cursors against a std::map.
#include <doctest/doctest.h>

#include "tests/support/node_memory.h"
#include "tests/support/test_seed.h"

using namespace cowraid;

namespace {

using Bytes = std::vector<std::byte>;
using Model = std::map<Key, Bytes>;

struct Fixture {
    explicit Fixture(uint64_t seed) : random(seed) { }

    // `count` random items, payload sizes up to `max_bytes`.
    void fill(uint64_t count, uint64_t max_bytes)
    {
        while (model.size() < count) {
            Bytes value(random.below(max_bytes + 1));
            random.fill(value.data(), value.size());
            model.emplace(random_key(), std::move(value));
        }
        std::vector<TreeUpdate> updates;
        for (const auto& [key, value] : model)
            updates.push_back({key, TreeUpdate::Kind::kPut, value});
        CowTree tree(cache, {kRootTree, {}});
        REQUIRE(tree.apply(updates, nullptr).ok());
        root = commit(tree, cache, store, random, {1});
    }
    Key random_key()
    {
        return {random.below(50), static_cast<uint8_t>(random.below(3)), random.below(1000) * 16};
    }
    void expect(TreeCursor& cursor, Model::const_iterator at)
    {
        REQUIRE(cursor.valid() == (at != model.end()));
        if (at == model.end())
            return;
        CHECK((cursor.key() == at->first));
        CHECK(std::ranges::equal(cursor.payload(), at->second));
    }
    // The last item at or below `key`; end() when none.
    Model::const_iterator at_or_below(const Key& key)
    {
        auto item = model.upper_bound(key);
        return item == model.begin() ? model.end() : std::prev(item);
    }

    Prng random;
    TestStore store;
    NodeCache cache{store, test_uuid(), 2 * kMiB};
    TreeRoot root{kRootTree, {}};
    Model model;
};

}  // namespace

TEST_CASE("cursors seek and step as a map's iterators do")
{
    const uint64_t seed = test_seed(3);
    INFO("COWRAID_SEED=", seed);
    for (const auto& [count, max_bytes] : {std::pair<uint64_t, uint64_t>{1, 50}, {100, 50}, {2000, 4000}}) {
        Fixture f(seed);
        f.fill(count, max_bytes);
        TreeCursor cursor(f.cache, f.root);
        for (int i = 0; i < 2000; ++i) {
            const Key key = i % 2 == 0 ? f.random_key() : next_key(f.random_key());
            Model::const_iterator at = f.model.lower_bound(key);
            if (f.random.chance(1, 2)) {
                REQUIRE(cursor.seek(key).ok());
            } else {
                at = f.at_or_below(key);
                REQUIRE(cursor.seek_before(key).ok());
            }
            f.expect(cursor, at);
            const bool forward = f.random.chance(1, 2);
            for (uint64_t steps = f.random.below(20); steps > 0 && cursor.valid(); --steps) {
                REQUIRE((forward ? cursor.next() : cursor.prev()).ok());
                if (forward)
                    ++at;
                else
                    at = at == f.model.begin() ? f.model.cend() : std::prev(at);
                f.expect(cursor, at);
            }
        }
    }
}

TEST_CASE("a cursor walks the whole tree in both directions")
{
    Fixture f(test_seed(4));
    f.fill(20000, 60);
    TreeCursor cursor(f.cache, f.root);
    REQUIRE(cursor.seek(kMinKey).ok());
    for (auto item = f.model.cbegin(); item != f.model.cend(); ++item) {
        f.expect(cursor, item);
        REQUIRE(cursor.next().ok());
    }
    CHECK_FALSE(cursor.valid());
    REQUIRE(cursor.seek_before(kMaxKey).ok());
    for (auto item = f.model.crbegin(); item != f.model.crend(); ++item) {
        REQUIRE(cursor.valid());
        CHECK((cursor.key() == item->first));
        REQUIRE(cursor.prev().ok());
    }
    CHECK_FALSE(cursor.valid());
}

TEST_CASE("an empty tree has nothing, and an unreadable one invalidates the cursor")
{
    Fixture f(test_seed(5));
    TreeCursor empty(f.cache, f.root);
    REQUIRE(empty.seek(kMinKey).ok());
    CHECK_FALSE(empty.valid());
    REQUIRE(empty.seek_before(kMaxKey).ok());
    CHECK_FALSE(empty.valid());
    Bytes out;
    CHECK(tree_lookup(f.cache, f.root, {1, 1, 1}, out).err() == Err::kNotFound);

    f.fill(5000, 100);
    TreeCursor cursor(f.cache, f.root);
    REQUIRE(cursor.seek(kMinKey).ok());
    f.cache.clear();
    f.store.fail_read(1);
    Status status;
    while (status.ok() && cursor.valid())
        status = cursor.next();
    CHECK(status.err() == Err::kIo);
    CHECK_FALSE(cursor.valid());
}
