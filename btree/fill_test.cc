// SPDX-License-Identifier: MIT
// How full nodes are after loads of several kinds.
#include <doctest/doctest.h>

#include "btree/check.h"
#include "btree/node_image.h"
#include "tests/support/node_memory.h"
#include "tests/support/test_seed.h"

using namespace cowraid;

namespace {

using Bytes = std::vector<std::byte>;

class FillMeter : public TreeVisitor {
public:
    void node(const Node& node) override
    {
        const std::byte* image = node.content().data();
        const uint64_t used = node.is_leaf() ? leaf_run_bytes(image, 0, node.item_count())
                                             : node.item_count() * sizeof(DiskChildItem);
        (node.is_leaf() ? leaf_bytes : internal_bytes) += used;
        (node.is_leaf() ? leaves : internals) += 1;
    }
    void item(const Key&, std::span<const std::byte>) override { ++items; }
    void problem(const std::string& text) override { FAIL(text); }

    [[nodiscard]] uint64_t leaf_percent() const
    {
        return leaves == 0 ? 0 : leaf_bytes * 100 / (leaves * kNodeRoomBytes);
    }

    uint64_t leaf_bytes = 0, internal_bytes = 0, leaves = 0, internals = 0, items = 0;
};

class Loader {
public:
    explicit Loader(uint64_t seed) : random(seed) { }

    // One commit of these keys, all with `item_bytes` of payload.
    void put(const std::set<Key>& keys, uint64_t item_bytes)
    {
        const Bytes value(item_bytes);
        std::vector<TreeUpdate> updates;
        for (const Key& key : keys)
            updates.push_back({key, TreeUpdate::Kind::kPut, value});
        apply(updates);
    }
    void apply(std::span<const TreeUpdate> updates)
    {
        CowTree tree(cache, root);
        REQUIRE(tree.apply(updates, nullptr).ok());
        generation = generation.next();
        root = commit(tree, cache, store, random, generation);
    }
    FillMeter measure()
    {
        FillMeter meter;
        REQUIRE(check_tree(cache, root, meter).ok());
        return meter;
    }

    Prng random;
    TestStore store;
    NodeCache cache{store, test_uuid(), 256 * kMiB};
    TreeRoot root{kRootTree, {}};
    Generation generation{0};
};

// The lowest average fill of the leaves while `total` random keys come in batches.
uint64_t lowest_random_fill(uint64_t seed, uint64_t total, uint64_t batch, uint64_t item_bytes)
{
    Loader loader(seed);
    uint64_t lowest = 100;
    for (uint64_t done = 0; done < total; done += batch) {
        std::set<Key> keys;
        for (uint64_t i = 0; i < batch; ++i)
            keys.insert({loader.random.next(), 1, 0});
        loader.put(keys, item_bytes);
        const FillMeter meter = loader.measure();
        if (meter.leaves >= 20)
            lowest = std::min(lowest, meter.leaf_percent());
    }
    return lowest;
}

}  // namespace

TEST_CASE("leaves stay at least 60 percent full under random inserts")
{
    const uint64_t seed = test_seed(21);
    INFO("COWRAID_SEED=", seed);
    for (uint64_t batch : {20, 500, 5000}) {
        const uint64_t lowest = lowest_random_fill(seed, batch == 20 ? 8000 : 60000, batch, 80);
        MESSAGE("batch " << batch << ": lowest average fill " << lowest << " %");
        CHECK(lowest >= 60);
    }
}

TEST_CASE("leaves are at least 90 percent full under appends")
{
    for (uint64_t item_bytes : {0, 40, 1000}) {
        for (uint64_t batch : {1, 7, 100, 20000}) {
            Loader loader(1);
            const uint64_t total = batch == 1 ? 3000 : 20000;
            for (uint64_t next = 0; next < total;) {
                std::set<Key> keys;
                for (uint64_t i = 0; i < batch; ++i)
                    keys.insert({next++, 1, 0});
                loader.put(keys, item_bytes);
            }
            const FillMeter meter = loader.measure();
            INFO("item ", item_bytes, " batch ", batch);
            CHECK(meter.items >= total);
            CHECK(meter.leaves >= 4);
            CHECK(meter.leaf_bytes * 100 / ((meter.leaves - 1) * kNodeRoomBytes) >= 90);
        }
    }
}

TEST_CASE("thinning out a tree joins its nodes")
{
    Loader loader(test_seed(22));
    std::set<Key> keys;
    for (uint64_t i = 0; i < 100000; ++i)
        keys.insert({i, 1, 0});
    loader.put(keys, 80);
    const FillMeter before = loader.measure();
    // Nine of ten, at random, a few at a time.
    std::vector<Key> order(keys.begin(), keys.end());
    for (size_t i = order.size() - 1; i > 0; --i)
        std::swap(order[i], order[loader.random.below(i + 1)]);
    order.resize(order.size() * 9 / 10);
    for (size_t done = 0; done < order.size(); done += 5000) {
        const std::set<Key> batch(order.begin() + static_cast<ptrdiff_t>(done),
                                  order.begin() +
                                      static_cast<ptrdiff_t>(std::min(done + 5000, order.size())));
        std::vector<TreeUpdate> updates;
        for (const Key& key : batch)
            updates.push_back({key, TreeUpdate::Kind::kErase, {}});
        loader.apply(updates);
    }
    const FillMeter after = loader.measure();
    CHECK(after.items == 10000);
    CHECK(after.leaves < before.leaves / 2);
    CHECK(after.leaf_percent() >= 25);
}
