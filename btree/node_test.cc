// SPDX-License-Identifier: MIT
// Nodes whose fields were changed and checksums restamped: refused, or a node that is safe to use.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>

#include "btree/node_image.h"
#include "tests/support/node_memory.h"
#include "tests/support/test_seed.h"

using namespace cowraid;

namespace {

using Bytes = std::vector<std::byte>;

// A leaf and an internal node, as they would be written.
struct Samples {
    Samples()
    {
        Prng random(1);
        TestStore store;
        NodeCache cache(store, test_uuid(), 64 * kMiB);
        CowTree tree(cache, {kRootTree, {}});
        std::vector<Bytes> values;
        std::vector<TreeUpdate> updates;
        for (uint64_t i = 0; i < 1000; ++i)
            values.emplace_back(random.below(200));
        for (uint64_t i = 0; i < 1000; ++i)
            updates.push_back(
                {{i / 10, static_cast<uint8_t>(i % 10), i * 7}, TreeUpdate::Kind::kPut, values[i]});
        REQUIRE(tree.apply(updates, nullptr).ok());
        assign_all(tree, store, random);
        std::vector<Ref<const Node>> nodes;
        REQUIRE(tree.seal({5}, test_uuid(), nodes).ok());
        leaf = nodes.front();
        internal = nodes.back();
        REQUIRE(leaf->is_leaf());
        REQUIRE(internal->level() == 1);
    }
    Ref<const Node> leaf;
    Ref<const Node> internal;
};

AlignedBuffer copy_of(const Node& node)
{
    AlignedBuffer copy(kNodeBytes);
    std::memcpy(copy.data(), node.content().data(), kNodeBytes);
    return copy;
}

// Parses with fresh checksums in the pointer.
Result<Ref<const Node>> parse_restamped(AlignedBuffer image, BlockRef ref, int level)
{
    ref.checksums = checksums_of_node(image.span());
    return Node::parse(std::move(image), ref, test_uuid(), kRootTree, level);
}

// Touches every byte a user of the node would.
uint64_t read_everything(const Node& node)
{
    uint64_t sum = node.level() + node.tree_id();
    for (uint32_t i = 0; i < node.item_count(); ++i) {
        sum += node.key(i).object;
        CHECK(node.lower_bound(node.key(i)) == i);
        if (node.is_leaf()) {
            for (const std::byte byte : node.payload(i))
                sum += static_cast<uint8_t>(byte);
        } else {
            CHECK(node.child_for(node.key(i)) == i);
            for (const Checksum checksum : node.child(i).checksums)
                sum += checksum;
            CHECK(node.child(i).address.valid());
        }
    }
    return sum;
}

struct FuzzCount {
    uint64_t refused = 0;
    uint64_t accepted = 0;
    uint64_t sum = 0;
};

void try_bytes(const Node& node, size_t offset, std::span<const std::byte> bytes, FuzzCount& count)
{
    AlignedBuffer image = copy_of(node);
    std::memcpy(image.data() + offset, bytes.data(), bytes.size());
    const Result<Ref<const Node>> parsed = parse_restamped(std::move(image), node.block_ref(), -1);
    if (!parsed.ok()) {
        CHECK(parsed.err() == Err::kCorrupt);
        ++count.refused;
        return;
    }
    ++count.accepted;
    count.sum += read_everything(**parsed);
}

// A field times {0, 1, max, max - 1, its neighbours, random}.
void fuzz_field(const Node& node, size_t offset, size_t width, Prng& random, FuzzCount& count)
{
    uint64_t old_value = 0;
    std::memcpy(&old_value, node.content().data() + offset, width);
    const uint64_t values[] = {0, 1, UINT64_MAX, UINT64_MAX - 1, old_value + 1, old_value - 1, random.next()};
    for (const uint64_t value : values)
        try_bytes(node, offset, {reinterpret_cast<const std::byte*>(&value), width}, count);
}

constexpr size_t kHeaderFields[][2] = {{0, 8},  {8, 8},  {16, 8}, {24, 8}, {32, 8},
                                       {40, 8}, {48, 2}, {50, 2}, {52, 4}, {56, 8}};

}  // namespace

TEST_CASE("a sealed node parses to what was put in, and any wrong expectation is refused")
{
    const Samples samples;
    const Node& leaf = *samples.leaf;
    const BlockRef ref = leaf.block_ref();
    REQUIRE(Node::parse(copy_of(leaf), ref, test_uuid(), kRootTree, 0).ok());
    BlockRef wrong = ref;
    wrong.address = ref.address + kNodeBytes;
    CHECK_FALSE(Node::parse(copy_of(leaf), wrong, test_uuid(), kRootTree, 0).ok());
    wrong = ref;
    wrong.generation = ref.generation.next();
    CHECK_FALSE(Node::parse(copy_of(leaf), wrong, test_uuid(), kRootTree, 0).ok());
    for (uint32_t block = 0; block < kNodeBlocks; ++block) {
        wrong = ref;
        wrong.checksums[block] ^= 1;
        CHECK_FALSE(Node::parse(copy_of(leaf), wrong, test_uuid(), kRootTree, 0).ok());
    }
    CHECK_FALSE(Node::parse(copy_of(leaf), ref, test_uuid(), kRootTree + 1, 0).ok());
    CHECK_FALSE(Node::parse(copy_of(leaf), ref, test_uuid(), kRootTree, 1).ok());
    CHECK_FALSE(Node::parse(copy_of(leaf), ref, Uuid{}, kRootTree, 0).ok());
    CHECK_FALSE(Node::parse(AlignedBuffer::zeroed(kBlockBytes), ref, test_uuid(), kRootTree, 0).ok());
    for (const size_t byte : {size_t{0}, size_t{5000}, size_t{9000}, size_t{kNodeBytes - 1}}) {
        AlignedBuffer flipped = copy_of(leaf);
        flipped.data()[byte] ^= std::byte{1};
        CHECK_FALSE(Node::parse(std::move(flipped), ref, test_uuid(), kRootTree, 0).ok());
    }
}

TEST_CASE("a header field of a node, changed and restamped, is refused")
{
    const Samples samples;
    for (const Node* node : {samples.leaf.get(), samples.internal.get()}) {
        for (const auto& field : kHeaderFields) {
            const size_t offset = field[0];
            if (offset == offsetof(DiskNodeHeader, item_count))
                continue;  // fewer items can be a valid node
            AlignedBuffer image = copy_of(*node);
            image.data()[offset] ^= std::byte{0x40};
            INFO("header offset ", offset);
            CHECK_FALSE(
                parse_restamped(std::move(image), node->block_ref(), static_cast<int>(node->level())).ok());
        }
    }
}

TEST_CASE("every field of every item, changed and restamped, is refused or harmless")
{
    const Samples samples;
    Prng random(test_seed(31));
    FuzzCount count;
    for (const auto& [offset, width] : kHeaderFields) {
        fuzz_field(*samples.leaf, offset, width, random, count);
        fuzz_field(*samples.internal, offset, width, random, count);
    }
    constexpr size_t kLeafFields[][2] = {{0, 8}, {8, 8}, {16, 1}, {17, 1}, {18, 2}, {20, 2}, {22, 2}};
    for (uint32_t i = 0; i < samples.leaf->item_count(); ++i) {
        for (const auto& [offset, width] : kLeafFields)
            fuzz_field(*samples.leaf, sizeof(DiskNodeHeader) + i * sizeof(DiskLeafItem) + offset, width,
                       random, count);
    }
    constexpr size_t kChildFields[][2] = {{0, 8},  {8, 8},  {16, 1}, {17, 7}, {24, 8},
                                          {32, 8}, {40, 8}, {48, 8}, {56, 8}, {64, 8}};
    for (uint32_t i = 0; i < samples.internal->item_count(); ++i) {
        for (const auto& [offset, width] : kChildFields)
            fuzz_field(*samples.internal, sizeof(DiskNodeHeader) + i * sizeof(DiskChildItem) + offset, width,
                       random, count);
    }
    CHECK(count.refused > 1000);
    CHECK(count.accepted > 50);  // child checksums, keys that stay in order
    CHECK(count.sum != 0);
}

TEST_CASE("random damage anywhere in a node is refused or harmless")
{
    const Samples samples;
    const uint64_t seed = test_seed(32);
    INFO("COWRAID_SEED=", seed);
    Prng random(seed);
    FuzzCount count;
    for (int i = 0; i < 20000; ++i) {
        const Node& node = i % 2 == 0 ? *samples.leaf : *samples.internal;
        // Mostly the header and the items, where structure is.
        const size_t limit = random.chance(1, 4) ? kNodeBytes - 16 : 64 + 24 * size_t{node.item_count()};
        std::byte bytes[16];
        random.fill(bytes, sizeof bytes);
        try_bytes(node, random.below(limit), {bytes, random.between(1, sizeof bytes)}, count);
    }
    CHECK(count.refused > 5000);
    CHECK(count.accepted > 500);
}

TEST_CASE("the largest items share a leaf by two, and an empty payload may lie at the very end")
{
    Prng random(1);
    TestStore store;
    NodeCache cache(store, test_uuid(), kMiB);
    CowTree tree(cache, {kRootTree, {}});
    const Bytes value(kMaxItemBytes, std::byte{7});
    const TreeUpdate updates[] = {{{1, 0, 0}, TreeUpdate::Kind::kPut, value},
                                  {{2, 0, 0}, TreeUpdate::Kind::kPut, value}};
    REQUIRE(tree.apply(updates, nullptr).ok());
    CHECK(tree.unassigned_count() == 1);
    CowTree empty(cache, {kRootTree, {}});
    const TreeUpdate nothing[] = {{{1, 0, 0}, TreeUpdate::Kind::kPut, {}}};
    REQUIRE(empty.apply(nothing, nullptr).ok());
    const TreeRoot root = commit(empty, cache, store, random, {1});
    Bytes out(3);
    REQUIRE(tree_lookup(cache, root, {1, 0, 0}, out).ok());
    CHECK(out.empty());
}
