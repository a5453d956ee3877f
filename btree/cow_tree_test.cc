// SPDX-License-Identifier: MIT
// Random batches against a std::map, with the store checked after every commit.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "base/sanitizer.h"
#include "btree/check.h"
#include "tests/support/node_memory.h"
#include "tests/support/test_seed.h"

using namespace cowraid;

namespace {

using Bytes = std::vector<std::byte>;
using Model = std::map<Key, Bytes>;

// Appends the update to the item; an item that would grow beyond its limit is erased instead.
class AppendingCombiner : public Combiner {
public:
    static constexpr size_t kLimit = 600;

    static Bytes result(std::span<const std::byte> old_value, std::span<const std::byte> update)
    {
        Bytes out(old_value.begin(), old_value.end());
        out.insert(out.end(), update.begin(), update.end());
        if (out.size() > kLimit)
            out.clear();
        return out;
    }
    Status combine(const Key&, std::span<const std::byte> old_value, std::span<const std::byte> update,
                   Bytes& out) override
    {
        out = result(old_value, update);
        return {};
    }
};

// Collects what check_tree() finds.
class Collector : public TreeVisitor {
public:
    void node(const Node& node) override
    {
        addresses.insert(node.block_ref().address.value);
        top_level = std::max(top_level, node.level());
    }
    void item(const Key& key, std::span<const std::byte> payload) override
    {
        duplicates += items.emplace(key, Bytes(payload.begin(), payload.end())).second ? 0 : 1;
    }
    void problem(const std::string& text) override { problems.push_back(text); }

    std::set<uint64_t> addresses;
    uint32_t top_level = 0;
    Model items;
    uint64_t duplicates = 0;
    std::vector<std::string> problems;
};

struct Plan {
    uint64_t key_count;  // keys are drawn from this many
    uint64_t max_batch;
    uint64_t max_item_bytes;
    uint64_t full_percent;  // of the items have max_item_bytes
    uint64_t erase_percent;
    int commits;
};

class ModelRun {
public:
    ModelRun(uint64_t seed, const Plan& plan)
        : random_(seed), plan_(plan), cache_(std::make_unique<NodeCache>(store_, test_uuid(), 4 * kMiB))
    {
    }

    void run();
    size_t peak_items = 0;
    uint32_t peak_level = 0;
    uint64_t released_total = 0;

private:
    Key random_key()
    {
        // Few objects and types, so that every field decides some comparison.
        const uint64_t number = random_.below(plan_.key_count);
        return {number / 97 / 3, static_cast<uint8_t>(number / 97 % 3), number % 97 * 4096};
    }
    Bytes random_bytes(uint64_t limit);
    void random_batch(CowTree& tree);
    void apply_to_model(const TreeUpdate& update);
    void commit_one();
    void verify();
    void note_assigned(CowTree& tree);

    Prng random_;
    Plan plan_;
    TestStore store_;
    std::unique_ptr<NodeCache> cache_;
    TreeRoot root_{kFirstFileTree, {}};
    Generation generation_{1};
    Model model_;
    std::set<uint64_t> assigned_;
};

Bytes ModelRun::random_bytes(uint64_t limit)
{
    uint64_t bytes = random_.below(std::min<uint64_t>(limit, 200) + 1);
    if (random_.chance(1, 8))
        bytes = random_.below(limit + 1);
    if (random_.chance(plan_.full_percent, 100))
        bytes = limit;
    Bytes out(bytes);
    random_.fill(out.data(), out.size());
    return out;
}

void ModelRun::apply_to_model(const TreeUpdate& update)
{
    Bytes value(update.value.begin(), update.value.end());
    if (update.kind == TreeUpdate::Kind::kErase) {
        model_.erase(update.key);
        return;
    }
    if (update.kind == TreeUpdate::Kind::kCombine) {
        const auto old = model_.find(update.key);
        value = AppendingCombiner::result(old == model_.end() ? Bytes{} : old->second, update.value);
        if (value.empty()) {
            model_.erase(update.key);
            return;
        }
    }
    model_[update.key] = std::move(value);
}

void ModelRun::random_batch(CowTree& tree)
{
    std::set<Key> keys;
    for (uint64_t i = random_.between(1, plan_.max_batch); i > 0; --i)
        keys.insert(random_key());
    if (random_.chance(1, 10)) {
        const Key from = random_key();  // a stretch of keys at once
        for (auto item = model_.lower_bound(from); item != model_.end() && keys.size() < 2000; ++item)
            keys.insert(item->first);
    }
    const uint64_t erase_percent = random_.chance(1, 4) ? 100 : plan_.erase_percent;
    std::vector<Bytes> values;
    std::vector<TreeUpdate> updates;
    for (const Key& key : keys) {
        TreeUpdate update{key, TreeUpdate::Kind::kPut, {}};
        if (random_.chance(erase_percent, 100))
            update.kind = TreeUpdate::Kind::kErase;
        else if (random_.chance(1, 4))
            update.kind = TreeUpdate::Kind::kCombine;
        values.push_back(
            random_bytes(update.kind == TreeUpdate::Kind::kCombine ? 300 : plan_.max_item_bytes));
        update.value = values.back();
        updates.push_back(update);
    }
    AppendingCombiner combiner;
    REQUIRE(tree.apply(updates, &combiner).ok());
    for (const TreeUpdate& update : updates)
        apply_to_model(update);
}

void ModelRun::note_assigned(CowTree& tree)
{
    for (const VolumeAddress address : assign_all(tree, store_, random_))
        CHECK(assigned_.insert(address.value).second);
    CHECK(tree.unassigned_count() == 0);
    for (const VolumeAddress address : tree.take_released()) {
        CHECK(assigned_.erase(address.value) == 1);
        store_.give_back(address);
        ++released_total;
    }
}

void ModelRun::commit_one()
{
    CowTree tree(*cache_, root_);
    assigned_.clear();
    CHECK_FALSE(tree.changed());
    for (uint64_t applies = random_.between(1, 4); applies > 0; --applies) {
        random_batch(tree);
        if (random_.chance(1, 2))
            note_assigned(tree);
    }
    note_assigned(tree);

    const bool changed = tree.changed();
    const BlockRef old_root = root_.root;
    std::vector<Ref<const Node>> nodes;
    generation_ = generation_.next();
    root_ = tree.seal(generation_, test_uuid(), nodes).take();
    CHECK(changed == (root_.root != old_root));
    std::set<uint64_t> sealed;
    for (const Ref<const Node>& node : nodes) {
        CHECK(store_.nodes().count(node->block_ref().address.value) == 0);  // never over a committed node
        sealed.insert(node->block_ref().address.value);
        store_.write(*node);
        if (random_.chance(1, 2))
            cache_->insert(node);
    }
    CHECK(sealed == assigned_);
    for (const BlockRef& ref : tree.take_freed()) {
        REQUIRE(store_.nodes().count(ref.address.value) == 1);
        CHECK(ref.generation < generation_);
        store_.erase(ref.address);
    }
    verify();
}

// The store must hold exactly what the root reaches, and that must be the model.
void ModelRun::verify()
{
    Collector found;
    REQUIRE(check_tree(*cache_, root_, found).ok());
    CHECK(found.problems == std::vector<std::string>{});
    CHECK((found.items == model_));
    CHECK(found.duplicates == 0);
    std::set<uint64_t> stored;
    for (const auto& [address, content] : store_.nodes())
        stored.insert(address);
    CHECK(found.addresses == stored);
    peak_level = std::max(peak_level, found.top_level);
}

void ModelRun::run()
{
    for (int i = 0; i < plan_.commits; ++i) {
        commit_one();
        peak_items = std::max(peak_items, model_.size());
        if (random_.chance(1, 5))  // reopen: nothing cached
            cache_ = std::make_unique<NodeCache>(store_, test_uuid(), random_.between(1, 64) * kNodeBytes);
    }
    CowTree tree(*cache_, root_);
    std::vector<TreeUpdate> updates;
    for (const auto& [key, value] : model_)
        updates.push_back({key, TreeUpdate::Kind::kErase, {}});
    REQUIRE(tree.apply(updates, nullptr).ok());
    CHECK(tree.unassigned_count() == 0);
    CHECK(tree.changed() == !model_.empty());
    CHECK(tree.take_freed().size() == store_.nodes().size());
    std::vector<Ref<const Node>> nodes;
    CHECK_FALSE(tree.seal(generation_.next(), test_uuid(), nodes)->root.address.valid());
    CHECK(nodes.empty());
}

Bytes bytes_of(size_t count, uint8_t value)
{
    return Bytes(count, std::byte{value});
}

}  // namespace

TEST_CASE("random batches agree with a map, and every node is accounted for")
{
    const Plan plans[] = {
        {200, 30, 100, 5, 30, 20},  // one or two leaves
        {20000, 3000, 300, 5, 20, 15},  // many small items
        {3000, 900, kMaxItemBytes, 80, 20, 12},  // two items to a leaf, three levels
        {3000, 900, kMaxItemBytes, 50, 55, 25},  // erased about as fast as filled
        {60000, 3, 64, 0, 10, 60},  // tiny batches
    };
    const uint64_t base = test_seed(1000);
    constexpr uint64_t kSeeds = kSanitized ? 2 : 5;
    uint64_t released = 0;
    uint32_t peak_level = 0;
    for (const Plan& plan : plans) {
        size_t peak_items = 0;
        for (uint64_t seed = base; seed < base + kSeeds; ++seed) {
            INFO("COWRAID_SEED=", seed, " key_count ", plan.key_count);
            ModelRun run(seed, plan);
            run.run();
            peak_items = std::max(peak_items, run.peak_items);
            peak_level = std::max(peak_level, run.peak_level);
            released += run.released_total;
        }
        CHECK(peak_items > 20);
    }
    CHECK(peak_level >= 2);
    CHECK(released > 100);  // nodes that had an address vanished within their commit
}

TEST_CASE("updates without effect leave the tree alone")
{
    Prng random(test_seed(7));
    TestStore store;
    NodeCache cache(store, test_uuid(), kMiB);
    CowTree first(cache, {kRootTree, {}});
    const TreeUpdate nothing[] = {{{5, 1, 0}, TreeUpdate::Kind::kErase, {}}};
    REQUIRE(first.apply(nothing, nullptr).ok());
    CHECK_FALSE(first.changed());
    std::vector<Bytes> values;
    std::vector<TreeUpdate> updates;
    for (uint64_t i = 0; i < 5000; ++i)
        values.push_back(bytes_of(50 + i % 50, static_cast<uint8_t>(i)));
    for (uint64_t i = 0; i < 5000; ++i)
        updates.push_back({{i, 1, i}, TreeUpdate::Kind::kPut, values[i]});
    REQUIRE(first.apply(updates, nullptr).ok());
    CHECK(first.changed());
    const TreeRoot root = commit(first, cache, store, random, {1});

    CowTree second(cache, root);
    REQUIRE(second.apply(updates, nullptr).ok());  // the same items again
    std::vector<TreeUpdate> erases;
    for (uint64_t i = 0; i < 5000; ++i)
        erases.push_back({{i, 2, 0}, TreeUpdate::Kind::kErase, {}});
    REQUIRE(second.apply(erases, nullptr).ok());
    CHECK_FALSE(second.changed());
    CHECK(second.unassigned_count() == 0);
    CHECK(second.take_freed().empty());
    std::vector<Ref<const Node>> nodes;
    CHECK(second.seal({2}, test_uuid(), nodes)->root == root.root);
    CHECK(nodes.empty());

    CowTree third(cache, root);
    const TreeUpdate change[] = {{{2500, 1, 2500}, TreeUpdate::Kind::kErase, {}}};
    REQUIRE(third.apply(change, nullptr).ok());
    const size_t path = assign_all(third, store, random).size();
    CHECK(path == 2);
    CHECK(third.take_freed().size() == path);
    REQUIRE(third.apply(erases, nullptr).ok());  // now over pending nodes
    CHECK(third.unassigned_count() == 0);
    CHECK(third.take_freed().empty());
    CHECK(third.seal({2}, test_uuid(), nodes)->root.generation == Generation{2});
    CHECK(nodes.size() == path);
}

TEST_CASE("one changed item replaces one path, and a second change in the commit keeps its addresses")
{
    Prng random(test_seed(8));
    TestStore store;
    NodeCache cache(store, test_uuid(), 64 * kMiB);
    CowTree first(cache, {kRootTree, {}});
    const Bytes value = bytes_of(100, 1);
    std::vector<TreeUpdate> updates;
    for (uint64_t i = 0; i < 60000; ++i)
        updates.push_back({{i, 1, 0}, TreeUpdate::Kind::kPut, value});
    REQUIRE(first.apply(updates, nullptr).ok());
    const TreeRoot root = commit(first, cache, store, random, {1});
    const int levels = static_cast<int>((*cache.get(root.root, kRootTree, -1))->level()) + 1;
    REQUIRE(levels == 3);

    CowTree second(cache, root);
    const Bytes other = bytes_of(100, 2);
    const TreeUpdate change[] = {{{30000, 1, 0}, TreeUpdate::Kind::kPut, other}};
    REQUIRE(second.apply(change, nullptr).ok());
    CHECK(second.unassigned_count() == 3);
    CHECK(second.take_freed().size() == 3);
    const std::vector<VolumeAddress> addresses = assign_all(second, store, random);
    const Bytes third = bytes_of(100, 3);
    const TreeUpdate again[] = {{{30000, 1, 0}, TreeUpdate::Kind::kPut, third}};
    REQUIRE(second.apply(again, nullptr).ok());
    CHECK(second.unassigned_count() == 0);
    CHECK(second.take_freed().empty());
    CHECK(second.take_released().empty());
    std::vector<Ref<const Node>> nodes;
    CHECK(second.seal({2}, test_uuid(), nodes)->root.address == addresses[2]);
    REQUIRE(nodes.size() == 3);
    for (uint32_t level = 0; level < 3; ++level) {  // leaves first, in assignment and in what seal() returns
        CHECK(nodes[level]->level() == level);
        CHECK(nodes[level]->block_ref().address == addresses[level]);
    }
}

TEST_CASE("a thinned-out subtree joins its committed neighbour, unless that cannot be read")
{
    for (const bool readable : {true, false}) {
        Prng random(test_seed(11));
        TestStore store;
        NodeCache cache(store, test_uuid(), 64 * kMiB);
        CowTree first(cache, {kRootTree, {}});
        const Bytes value = bytes_of(100, 1);
        std::vector<TreeUpdate> updates;
        constexpr uint64_t kItems = 40000;  // two inner nodes below the root
        for (uint64_t i = 0; i < kItems; ++i)
            updates.push_back({{i, 1, 0}, TreeUpdate::Kind::kPut, value});
        REQUIRE(first.apply(updates, nullptr).ok());
        const TreeRoot root = commit(first, cache, store, random, {1});
        const Ref<const Node> top = cache.get(root.root, kRootTree, -1).take();
        REQUIRE(top->level() == 2);
        REQUIRE(top->item_count() == 2);
        const BlockRef neighbour = top->child(1);
        if (!readable) {
            store.nodes().erase(neighbour.address.value);  // lost, not free
            cache.drop(neighbour.address);
        }
        CowTree second(cache, root);
        std::vector<TreeUpdate> erases;
        const uint64_t end = top->key(1).object;
        for (uint64_t i = 2000; i < end; ++i)
            erases.push_back({{i, 1, 0}, TreeUpdate::Kind::kErase, {}});
        REQUIRE(second.apply(erases, nullptr).ok());
        const std::vector<BlockRef> freed = second.take_freed();
        CHECK(std::ranges::count(freed, neighbour) == (readable ? 1 : 0));
        assign_all(second, store, random);
        std::vector<Ref<const Node>> nodes;
        const TreeRoot after = second.seal({2}, test_uuid(), nodes).take();
        CHECK(nodes.back()->level() == (readable ? 1 : 2));
        for (const Ref<const Node>& node : nodes)
            cache.insert(node);
        Collector found;
        REQUIRE(check_tree(cache, after, found).ok());
        CHECK(found.problems.size() == (readable ? 0 : 1));
        CHECK(found.items.size() == (readable ? kItems - end + 2000 : 2000));
    }
}

TEST_CASE("a failing read makes apply fail and leaves the committed tree alone")
{
    Prng random(test_seed(9));
    TestStore store;
    NodeCache cache(store, test_uuid(), 64 * kMiB);
    CowTree first(cache, {kRootTree, {}});
    const Bytes value = bytes_of(500, 1);
    std::vector<TreeUpdate> updates;
    for (uint64_t i = 0; i < 3000; ++i)
        updates.push_back({{i, 1, 0}, TreeUpdate::Kind::kPut, value});
    REQUIRE(first.apply(updates, nullptr).ok());
    const TreeRoot root = commit(first, cache, store, random, {1});
    for (const uint64_t n : {1, 2, 3, 50}) {
        cache.clear();
        store.fail_read(n);
        CowTree tree(cache, root);
        std::vector<TreeUpdate> erases;
        for (uint64_t i = 0; i < 3000; i += 10)
            erases.push_back({{i, 1, 0}, TreeUpdate::Kind::kErase, {}});
        CHECK(tree.apply(erases, nullptr).err() == Err::kIo);
    }
    Collector found;
    REQUIRE(check_tree(cache, root, found).ok());
    CHECK(found.problems.empty());
    CHECK(found.items.size() == 3000);
}

TEST_CASE("keys at both ends of the key space")
{
    Prng random(test_seed(10));
    TestStore store;
    NodeCache cache(store, test_uuid(), 64 * kMiB);
    CowTree tree(cache, {kRootTree, {}});
    const Bytes value = bytes_of(kMaxItemBytes, 1);
    const TreeUpdate updates[] = {{kMinKey, TreeUpdate::Kind::kPut, value},
                                  {{1, 2, 3}, TreeUpdate::Kind::kPut, value},
                                  {{1, 2, UINT64_MAX}, TreeUpdate::Kind::kPut, {}},
                                  {{1, UINT8_MAX, 0}, TreeUpdate::Kind::kPut, value},
                                  {kMaxKey, TreeUpdate::Kind::kPut, value}};
    REQUIRE(tree.apply(updates, nullptr).ok());
    const TreeRoot root = commit(tree, cache, store, random, {1});
    cache.clear();
    for (const TreeUpdate& update : updates) {
        Bytes out;
        REQUIRE(tree_lookup(cache, root, update.key, out).ok());
        CHECK(std::ranges::equal(out, update.value));
    }
    Bytes out;
    CHECK(tree_lookup(cache, root, {1, 2, 4}, out).err() == Err::kNotFound);
    Collector found;
    REQUIRE(check_tree(cache, root, found).ok());
    CHECK(found.problems.empty());
}
