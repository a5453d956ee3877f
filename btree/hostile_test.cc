// SPDX-License-Identifier: MIT
// Whole trees with damage under valid checksums: every walk ends, nothing crashes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "btree/check.h"
#include "btree/node_image.h"
#include "tests/support/node_memory.h"
#include "tests/support/test_seed.h"

using namespace cowraid;

namespace {

using Bytes = std::vector<std::byte>;

class Counter : public TreeVisitor {
public:
    void node(const Node&) override { ++nodes; }
    void item(const Key&, std::span<const std::byte> payload) override
    {
        ++items;
        for (const std::byte byte : payload)
            sum += static_cast<uint8_t>(byte);
    }
    void problem(const std::string& text) override { problems.push_back(text); }

    [[nodiscard]] bool has(const char* part) const
    {
        return std::ranges::any_of(problems,
                                   [part](const std::string& line) { return line.find(part) != line.npos; });
    }
    uint64_t nodes = 0, items = 0, sum = 0;
    std::vector<std::string> problems;
};

Bytes& content_at(TestStore& store, uint64_t address)
{
    return store.nodes().at(address);
}

// Makes the checksums of a damaged tree valid again, children before parents, wherever pointers still lead
// to nodes.
NodeChecksums restamp(TestStore& store, uint64_t address, int depth)
{
    Bytes& image = content_at(store, address);
    const DiskNodeHeader& header = node_header(image.data());
    if (header.level > 0 && depth < 8) {
        const uint32_t count = std::min<uint32_t>(header.item_count, kMaxChildren);
        for (uint32_t i = 0; i < count; ++i) {
            auto* item = reinterpret_cast<DiskChildItem*>(image.data() + sizeof header) + i;
            if (item->child.address == address || store.nodes().count(item->child.address) == 0)
                continue;
            BlockRef ref = decode(item->child);
            ref.checksums = restamp(store, item->child.address, depth + 1);
            item->child = encode(ref);
        }
    }
    return checksums_of_node(image);
}

struct Victim {
    explicit Victim(uint64_t seed) : random(seed)
    {
        CowTree tree(cache, root);
        std::vector<Bytes> values;
        std::vector<TreeUpdate> updates;
        for (uint64_t i = 0; i < 900; ++i)
            values.emplace_back(random.chance(1, 4) ? kMaxItemBytes : random.below(500));
        for (uint64_t i = 0; i < 900; ++i)
            updates.push_back({{i * 3, 1, i}, TreeUpdate::Kind::kPut, values[i]});
        REQUIRE(tree.apply(updates, nullptr).ok());
        root = commit(tree, cache, store, random, {3});
        cache.clear();
    }
    void restamp_all() { root.root.checksums = restamp(store, root.root.address.value, 0); }
    uint64_t random_address()
    {
        auto node = store.nodes().begin();
        std::advance(node, static_cast<ptrdiff_t>(random.below(store.nodes().size())));
        return node->first;
    }
    void damage();
    void use();

    Prng random;
    TestStore store;
    NodeCache cache{store, test_uuid(), 64 * kMiB};
    TreeRoot root{kRootTree, {}};
    uint64_t failed = 0;
    uint64_t worked = 0;
};

// Changes one item of one node in a way that often still parses.
void Victim::damage()
{
    const uint64_t address = random.chance(1, 3) ? root.root.address.value : random_address();
    Bytes& image = content_at(store, address);
    const DiskNodeHeader& header = node_header(image.data());
    const uint32_t index = static_cast<uint32_t>(random.below(header.item_count));
    if (header.level == 0) {
        auto* item = reinterpret_cast<DiskLeafItem*>(image.data() + sizeof header) + index;
        if (random.chance(1, 2))
            item->object = item->object + random.below(5) - 2;
        else
            item->data_bytes = static_cast<uint16_t>(item->data_bytes + random.below(3) - 1);
        return;
    }
    auto* items = reinterpret_cast<DiskChildItem*>(image.data() + sizeof header);
    switch (random.below(4)) {
    case 0:
        items[index].object = items[index].object + random.below(60) - 30;
        break;
    case 1:
        items[index].child = items[random.below(header.item_count)].child;
        break;
    case 2:
        items[index].child.address = random_address();
        break;
    default:
        items[index].child.generation = random.below(5);
    }
}

// Everything a mount would do with it.
void Victim::use()
{
    const auto note = [this](Status status) {
        ++(status.ok() ? worked : failed);
    };
    Counter counter;
    note(check_tree(cache, root, counter));
    TreeCursor cursor(cache, root);
    Status status = cursor.seek(kMinKey);
    uint64_t steps = 0;
    while (status.ok() && cursor.valid()) {
        REQUIRE(++steps < 100000);
        status = cursor.next();
    }
    note(status);
    note(cursor.seek_before(kMaxKey));
    while (cursor.valid() && cursor.prev().ok())
        REQUIRE(++steps < 200000);
    Bytes out;
    for (int i = 0; i < 50; ++i) {
        const uint64_t n = random.below(900);
        note(tree_lookup(cache, root, {n * 3, 1, n}, out));
    }
    CowTree tree(cache, root);
    std::map<Key, TreeUpdate::Kind> batch;
    for (uint64_t i = random.between(1, 300); i > 0; --i) {
        const uint64_t n = random.below(900);
        batch[{n * 3, 1, n}] = random.chance(3, 4) ? TreeUpdate::Kind::kErase : TreeUpdate::Kind::kPut;
    }
    const Bytes value(random.below(3000));
    std::vector<TreeUpdate> updates;
    for (const auto& [key, kind] : batch)
        updates.push_back({key, kind, value});
    status = tree.apply(updates, nullptr);
    note(status);
    if (!status.ok())
        return;
    std::vector<VolumeAddress> addresses(tree.unassigned_count());
    for (VolumeAddress& address : addresses)
        address = store.allocate(random);
    tree.assign(addresses);
    std::vector<Ref<const Node>> nodes;
    const Result<TreeRoot> sealed = tree.seal({4}, test_uuid(), nodes);
    note(sealed.status());
    if (!sealed.ok())
        return;
    CHECK(nodes.size() == addresses.size());
}

}  // namespace

TEST_CASE("damaged trees under valid checksums end in errors or in use, never in a crash")
{
    const uint64_t base = test_seed(500);
    uint64_t failed = 0;
    uint64_t worked = 0;
    for (uint64_t seed = base; seed < base + 150; ++seed) {
        INFO("COWRAID_SEED=", seed);
        Victim victim(seed);
        for (uint64_t i = victim.random.between(1, 4); i > 0; --i)
            victim.damage();
        victim.restamp_all();
        victim.use();
        failed += victim.failed;
        worked += victim.worked;
    }
    CHECK(failed > 500);
    CHECK(worked > 500);
}

TEST_CASE("a node that is reached twice, or at the wrong level, is found by every walk")
{
    const bool kWrongLevel[] = {false, true};
    for (const bool wrong_level : kWrongLevel) {
        Victim victim(1);
        const Bytes& image = content_at(victim.store, victim.root.root.address.value);
        REQUIRE(node_header(image.data()).level == 1);
        auto* items = const_cast<DiskChildItem*>(child_items(image.data()));
        if (wrong_level) {
            // A copy of the root at another address: a child of the level of its parent, the shape of a
            // cycle.
            const VolumeAddress address = victim.store.allocate(victim.random);
            Bytes copy = image;
            reinterpret_cast<DiskNodeHeader*>(copy.data())->address = address.value;
            items[1].child = encode(BlockRef{address, {3}, checksums_of_node(copy)});
            victim.store.write(address, copy);
        } else {
            items[1].child = items[0].child;
        }
        victim.root.root.checksums = checksums_of_node(image);
        Counter counter;
        REQUIRE(check_tree(victim.cache, victim.root, counter).ok());
        CHECK(counter.problems.size() == 1);
        CHECK(counter.has(wrong_level ? "cannot be read" : "reached twice"));
        CHECK(counter.nodes > 10);  // the walk went on
        TreeCursor cursor(victim.cache, victim.root);
        Status status = cursor.seek(kMinKey);
        while (status.ok() && cursor.valid())
            status = cursor.next();
        CHECK(status.err() == Err::kCorrupt);
        Bytes out;
        const Key key = key_of(items[1]);
        CHECK(tree_lookup(victim.cache, victim.root, key, out).err() == Err::kCorrupt);
        CowTree tree(victim.cache, victim.root);
        const TreeUpdate update[] = {{key, TreeUpdate::Kind::kPut, {}}};
        CHECK(tree.apply(update, nullptr).err() == Err::kCorrupt);
    }
}

// A chain of nodes from a leaf up to the highest level. Leaf: as many empty items as fit. Every internal node
// is full of children; `others` says where those beside the first lead.
enum class Others : uint8_t { kSameNode, kNowhere };

TreeRoot build_tower(TestStore& store, Others others)
{
    BlockRef below;
    for (uint32_t level = 0; level <= kNodeMaxLevel; ++level) {
        Bytes image(kNodeBytes);
        DiskNodeHeader header{};
        header.magic = kNodeMagic;
        std::memcpy(header.volume_uuid, test_uuid().bytes.data(), 16);
        header.address = (level + 1) * kNodeBytes;
        header.generation = 1;
        header.tree_id = kRootTree;
        header.level = static_cast<uint16_t>(level);
        header.item_count = level == 0 ? kNodeRoomBytes / sizeof(DiskLeafItem) : kMaxChildren;
        std::memcpy(image.data(), &header, sizeof header);
        for (uint32_t i = 0; i < header.item_count; ++i) {
            if (level == 0) {
                DiskLeafItem item{};
                item.offset = i * 2;
                item.data_offset = kNodeBytes;
                std::memcpy(image.data() + sizeof header + i * sizeof item, &item, sizeof item);
                continue;
            }
            DiskChildItem item{};
            item.object = i == 0 ? 0 : level * 1000 + i;
            item.child = encode(below);
            if (i > 0 && others == Others::kNowhere)
                item.child.address = kGiB;
            std::memcpy(image.data() + sizeof header + i * sizeof item, &item, sizeof item);
        }
        below = {{(level + 1) * kNodeBytes}, {1}, checksums_of_node(image)};
        store.write(below.address, image);
    }
    return {kRootTree, below};
}

TEST_CASE("sixteen levels that fan out to one node each are walked in no time")
{
    TestStore store;
    NodeCache cache(store, test_uuid(), 64 * kMiB);
    const TreeRoot root = build_tower(store, Others::kSameNode);
    Counter counter;
    REQUIRE(check_tree(cache, root, counter).ok());
    CHECK(counter.nodes == kNodeMaxLevel + 1);
    CHECK(counter.has("reached twice"));
    CHECK(counter.problems.size() < 20000);
    TreeCursor cursor(cache, root);
    Status status = cursor.seek(kMinKey);
    uint64_t steps = 0;
    while (status.ok() && cursor.valid() && ++steps < 100000)
        status = cursor.next();
    CHECK(status.err() == Err::kCorrupt);
}

TEST_CASE("a root that can rise no further is an error, not an assertion")
{
    TestStore store;
    NodeCache cache(store, test_uuid(), 64 * kMiB);
    CowTree tree(cache, build_tower(store, Others::kNowhere));
    const TreeUpdate update[] = {{{0, 0, 301}, TreeUpdate::Kind::kPut, {}}};  // splits every node of the path
    CHECK(tree.apply(update, nullptr).err() == Err::kCorrupt);
    CHECK(store.reads() > kNodeMaxLevel);
}

TEST_CASE("nodes that overlap are found")
{
    Victim victim(2);
    Bytes& image = content_at(victim.store, victim.root.root.address.value);
    REQUIRE(node_header(image.data()).level == 1);
    auto* items = const_cast<DiskChildItem*>(child_items(image.data()));
    items[1].child.address = items[0].child.address + kBlockBytes;
    victim.root.root.checksums = checksums_of_node(image);
    Counter counter;
    REQUIRE(check_tree(victim.cache, victim.root, counter).ok());
    CHECK(counter.has("overlaps another node"));
}

TEST_CASE("a pointer to the address that its new parent gets is damage, not a node")
{
    Victim victim(test_seed(900));
    const Ref<const Node> root = victim.cache.get(victim.root.root, victim.root.tree_id, -1).take();
    REQUIRE(!root->is_leaf());
    const VolumeAddress free_address = root->child(root->item_count() - 1).address;
    CowTree tree(victim.cache, victim.root);
    const std::byte value{7};
    const TreeUpdate update[] = {{next_key(kMinKey), TreeUpdate::Kind::kPut, {&value, 1}}};
    REQUIRE(tree.apply(update, nullptr).ok());
    REQUIRE(tree.unassigned_count() > 1);
    std::vector<VolumeAddress> addresses(tree.unassigned_count());
    for (VolumeAddress& address : addresses)
        address = victim.store.allocate(victim.random);
    addresses.back() = free_address;  // the root's
    tree.assign(addresses);
    std::vector<Ref<const Node>> nodes;
    CHECK(tree.seal({4}, test_uuid(), nodes).err() == Err::kCorrupt);
}
