// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "tests/support/node_memory.h"
#include "tests/support/test_seed.h"

using namespace cowraid;

namespace {

using Bytes = std::vector<std::byte>;

// A leaf with one item that says which version it is.
Ref<const Node> make_leaf(VolumeAddress address, Generation generation, uint64_t version)
{
    TestStore nowhere;
    NodeCache cache(nowhere, test_uuid(), kMiB);
    CowTree tree(cache, {kRootTree, {}});
    const TreeUpdate update[] = {
        {{address.value, 1, version}, TreeUpdate::Kind::kPut, std::as_bytes(std::span(&version, 1))}};
    REQUIRE(tree.apply(update, nullptr).ok());
    tree.assign({&address, 1});
    std::vector<Ref<const Node>> nodes;
    REQUIRE(tree.seal(generation, test_uuid(), nodes).ok());
    return nodes.front();
}

std::vector<BlockRef> store_leaves(TestStore& store, uint64_t count)
{
    std::vector<BlockRef> refs;
    for (uint64_t i = 1; i <= count; ++i) {
        const Ref<const Node> leaf = make_leaf({i * kNodeBytes}, {1}, i);
        store.write(*leaf);
        refs.push_back(leaf->block_ref());
    }
    return refs;
}

// Holds every reader until `expected` of them are inside, or one has waited long enough.
class SlowStore : public TestStore {
public:
    Status read_node(const BlockRef& ref, uint64_t tree_id, AlignedBuffer& out) override
    {
        {
            MutexLock lock(gate_mutex_);
            ++inside_;
            entered_.notify_all();
            while (!open_)
                gate_.wait(gate_mutex_);
        }
        return TestStore::read_node(ref, tree_id, out);
    }
    void wait_inside(uint32_t count)
    {
        MutexLock lock(gate_mutex_);
        while (inside_ < count)
            entered_.wait(gate_mutex_);
    }
    void open()
    {
        MutexLock lock(gate_mutex_);
        open_ = true;
        gate_.notify_all();
    }

private:
    Mutex gate_mutex_{LockRank::kDevice};
    CondVar gate_;
    CondVar entered_;
    bool open_ CW_GUARDED_BY(gate_mutex_) = false;
    uint32_t inside_ CW_GUARDED_BY(gate_mutex_) = 0;
};

}  // namespace

TEST_CASE("a node is read once, then comes from memory")
{
    TestStore store;
    const std::vector<BlockRef> refs = store_leaves(store, 10);
    NodeCache cache(store, test_uuid(), 4 * kMiB);
    for (int round = 0; round < 3; ++round) {
        for (const BlockRef& ref : refs) {
            const auto node = cache.get(ref, kRootTree, 0);
            REQUIRE(node.ok());
            CHECK((*node)->block_ref() == ref);
            CHECK((*node)->key(0).object == ref.address.value);
        }
    }
    CHECK(store.reads() == 10);
    CHECK(cache.statistics().misses == 10);
    CHECK(cache.statistics().hits == 20);
    CHECK(cache.get(refs[0], kRootTree + 1, 0).err() == Err::kCorrupt);
    CHECK(cache.get(refs[0], kRootTree, 1).err() == Err::kCorrupt);
    CHECK(cache.get(BlockRef{}, kRootTree, -1).err() == Err::kCorrupt);
}

TEST_CASE("a reused address never yields the other node")
{
    TestStore store;
    NodeCache cache(store, test_uuid(), 4 * kMiB);
    const VolumeAddress address{kNodeBytes};
    const Ref<const Node> old_leaf = make_leaf(address, {1}, 1);
    const Ref<const Node> new_leaf = make_leaf(address, {2}, 2);
    store.write(*old_leaf);
    REQUIRE(cache.get(old_leaf->block_ref(), kRootTree, 0).ok());
    store.write(*new_leaf);
    const auto got = cache.get(new_leaf->block_ref(), kRootTree, 0);
    REQUIRE(got.ok());
    CHECK((*got)->key(0).offset == 2);
    CHECK(cache.get(old_leaf->block_ref(), kRootTree, 0).err() == Err::kCorrupt);  // gone from the store
    CHECK(store.reads() == 3);
    CHECK((*cache.get(new_leaf->block_ref(), kRootTree, 0))->key(0).offset == 2);
    CHECK(store.reads() == 3);

    cache.insert(old_leaf);  // replaces
    CHECK((*cache.get(old_leaf->block_ref(), kRootTree, 0))->key(0).offset == 1);
    CHECK(store.reads() == 3);
    cache.drop(address);
    CHECK(cache.get(old_leaf->block_ref(), kRootTree, 0).err() == Err::kCorrupt);
    CHECK(store.reads() == 4);
}

TEST_CASE("the budget holds, pinned nodes stay, and what is used often survives")
{
    TestStore store;
    const std::vector<BlockRef> refs = store_leaves(store, 2000);
    constexpr uint64_t kBudget = 200 * kNodeBytes;
    NodeCache cache(store, test_uuid(), kBudget);
    for (size_t i = 0; i < refs.size(); ++i) {
        REQUIRE(cache.get(refs[i], kRootTree, 0).ok());
        REQUIRE(cache.get(refs[i % 20], kRootTree, 0).ok());  // twenty hot ones
        CHECK(cache.statistics().bytes <= kBudget);
    }
    CHECK(cache.statistics().bytes > kBudget / 2);
    CHECK(store.reads() < 2000 + 100);

    std::vector<Ref<const Node>> pinned;
    for (size_t i = 0; i < 400; ++i)
        pinned.push_back(cache.get(refs[i], kRootTree, 0).take());
    const uint64_t reads = store.reads();
    for (size_t i = 0; i < 400; ++i)
        CHECK((*cache.get(refs[i], kRootTree, 0)) == pinned[i]);
    CHECK(store.reads() == reads);
    CHECK(cache.statistics().bytes > kBudget);
    pinned.clear();
    cache.set_budget(kBudget / 10);
    CHECK(cache.statistics().bytes <= kBudget / 10);
    cache.clear();
    CHECK(cache.statistics().bytes == 0);
    cache.set_budget(0);
    CHECK(cache.get(refs[7], kRootTree, 0).ok());  // nothing is kept, everything works
    CHECK(cache.statistics().bytes <= kNodeBytes * 2);
}

TEST_CASE("concurrent misses of one node read it once, and a failure reaches all of them")
{
    for (const bool fails : {false, true}) {
        SlowStore store;
        const std::vector<BlockRef> refs = store_leaves(store, 2);
        if (fails)
            store.fail_read(1);
        NodeCache cache(store, test_uuid(), 4 * kMiB);
        std::atomic<uint32_t> good{0};
        std::atomic<uint32_t> started{0};
        std::vector<std::thread> threads;
        for (int i = 0; i < 8; ++i) {
            threads.emplace_back([&] {
                ++started;
                const auto node = cache.get(refs[0], kRootTree, 0);
                good += node.ok() && (*node)->block_ref() == refs[0] ? 1 : 0;
            });
        }
        store.wait_inside(1);
        while (started < 8)
            std::this_thread::yield();
        // All but one wait now or will find the node; none may be inside the store.
        while (cache.statistics().hits < 7)
            std::this_thread::yield();
        store.open();
        for (std::thread& thread : threads)
            thread.join();
        CHECK(store.reads() == 1);
        CHECK(good == (fails ? 0u : 8u));
        CHECK(cache.get(refs[0], kRootTree, 0).ok());  // a failure is not remembered
    }
}

TEST_CASE("a read that was overtaken by a rewrite does not come back into the cache")
{
    SlowStore store;
    const VolumeAddress address{kNodeBytes};
    const Ref<const Node> old_leaf = make_leaf(address, {1}, 1);
    const Ref<const Node> new_leaf = make_leaf(address, {2}, 2);
    store.write(*old_leaf);
    NodeCache cache(store, test_uuid(), 4 * kMiB);
    std::thread reader([&] { CHECK(cache.get(old_leaf->block_ref(), kRootTree, 0).ok()); });
    store.wait_inside(1);
    cache.insert(new_leaf);
    store.open();
    reader.join();
    CHECK((*cache.get(new_leaf->block_ref(), kRootTree, 0))->key(0).offset == 2);
    CHECK(store.reads() == 1);  // the store still holds the old node: a second read would have failed
}

TEST_CASE("threads hammer a small cache")
{
    TestStore store;
    const std::vector<BlockRef> refs = store_leaves(store, 300);
    NodeCache cache(store, test_uuid(), 100 * kNodeBytes);
    std::atomic<uint64_t> wrong{0};
    std::vector<std::thread> threads;
    const uint64_t seed = test_seed(41);
    for (uint64_t t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            Prng random(seed + t);
            std::vector<Ref<const Node>> held;
            for (int i = 0; i < 20000; ++i) {
                const BlockRef& ref = refs[random.below(refs.size())];
                Result<Ref<const Node>> node = cache.get(ref, kRootTree, 0);
                if (!node.ok() || (*node)->block_ref() != ref ||
                    (*node)->key(0).object != ref.address.value) {
                    ++wrong;
                    continue;
                }
                if (random.chance(1, 8))
                    held.push_back(node.take());
                else if (random.chance(1, 50))
                    cache.drop(ref.address);
                else if (random.chance(1, 50))
                    cache.insert(node.take());
                else if (random.chance(1, 2000))
                    cache.clear();
                else if (random.chance(1, 500))
                    cache.set_budget(random.between(50, 150) * kNodeBytes);
                if (held.size() > 30)
                    held.clear();
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    CHECK(wrong == 0);
    cache.set_budget(60 * kNodeBytes);
    CHECK(cache.statistics().bytes <= 60 * kNodeBytes);
    CHECK(cache.statistics().hits > 1000);
    CHECK(cache.statistics().misses == store.reads());
}
