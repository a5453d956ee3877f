// SPDX-License-Identifier: MIT
// Input: up to four nodes of one tree, the first of which is the root. Each: what to fit, the tree's number,
// level and count of items, lengths of items and payloads, then those.
#include <array>

#include "btree/check.h"
#include "btree/cow_tree.h"
#include "btree/node_image.h"
#include "format/to_text.h"
#include "tests/fuzz_targets/fuzz_input.h"
#include "tests/fuzz_targets/targets.h"

using namespace cowraid;

namespace {

using namespace node_input;

struct FuzzNode {
    uint8_t fit = 0;
    std::vector<std::byte> image;

    [[nodiscard]] DiskNodeHeader header() const { return load_front<DiskNodeHeader>(image); }
};

void pack_payloads(FuzzNode& node, uint32_t count)
{
    auto* items = reinterpret_cast<DiskLeafItem*>(node.image.data() + sizeof(DiskNodeHeader));
    uint32_t end = kNodeBytes;
    for (uint32_t i = 0; i < std::min<uint32_t>(count, kNodeRoomBytes / sizeof(DiskLeafItem)); ++i) {
        end -= std::min<uint32_t>(items[i].data_bytes, end);
        items[i].data_offset = static_cast<uint16_t>(end);
    }
}

FuzzNode node_from(FuzzInput& input, uint64_t index)
{
    FuzzNode node{.fit = input.take_u8(), .image = std::vector<std::byte>(kNodeBytes)};
    if ((node.fit & kRaw) != 0) {
        const std::span<const std::byte> bytes = input.take(kNodeBytes);
        std::copy(bytes.begin(), bytes.end(), node.image.begin());
        return node;
    }
    DiskNodeHeader header{};
    header.magic = kNodeMagic;
    std::memcpy(header.volume_uuid, fuzz_uuid().bytes.data(), sizeof header.volume_uuid);
    header.address = address_of(index).value;
    header.generation = kNewest.value;
    header.tree_id = input.take_u8();
    header.level = input.take_u8();
    header.item_count = input.take_u16();
    store_front(std::span(node.image), header);
    const size_t item_bytes = input.take_u16();
    const size_t payload_bytes = input.take_u16();
    const std::span<const std::byte> items = input.take(std::min<size_t>(item_bytes, kNodeRoomBytes));
    std::copy(items.begin(), items.end(), node.image.begin() + sizeof header);
    const std::span<const std::byte> payloads = input.take(std::min<size_t>(payload_bytes, kNodeRoomBytes));
    std::copy(payloads.begin(), payloads.end(), node.image.end() - static_cast<ptrdiff_t>(payloads.size()));
    if ((node.fit & kPackPayloads) != 0 && header.level == 0)
        pack_payloads(node, header.item_count);
    return node;
}

// Nodes by address. Pointers from a node to later ones have checksums that fit.
class FuzzStore : public NodeReader {
public:
    explicit FuzzStore(FuzzInput input)
    {
        do
            nodes_.push_back(node_from(input, nodes_.size()));
        while (!input.empty() && nodes_.size() < kNodesMax);
        for (size_t index = nodes_.size(); index-- > 0;)
            fit(index);
    }
    Status read_node(const BlockRef& ref, uint64_t /*tree_id*/, AlignedBuffer& out) override
    {
        for (uint64_t index = 0; index < nodes_.size(); ++index)
            if (address_of(index) == ref.address) {
                std::copy(nodes_[index].image.begin(), nodes_[index].image.end(), out.data());
                return {};
            }
        return Err::kIo;
    }
    [[nodiscard]] TreeRoot root() const
    {
        const DiskNodeHeader header = nodes_[0].header();
        return {header.tree_id, {address_of(0), {header.generation}, checksums_of_node(nodes_[0].image)}};
    }

private:
    void fit(size_t index)
    {
        FuzzNode& node = nodes_[index];
        if ((node.fit & kFitChecksum) == 0)
            return;
        const DiskNodeHeader header = node.header();
        auto* items = reinterpret_cast<DiskChildItem*>(node.image.data() + sizeof header);
        for (uint32_t i = 0; header.level > 0 && i < std::min<uint32_t>(header.item_count, kMaxChildren); ++i)
            for (size_t child = index + 1; child < nodes_.size(); ++child)
                if (BlockRef ref = decode(items[i].child); ref.address == address_of(child)) {
                    ref.checksums = checksums_of_node(nodes_[child].image);
                    items[i].child = encode(ref);
                }
    }

    std::vector<FuzzNode> nodes_;
};

void walk_items(const Node& node)
{
    for (uint32_t i = 0; i < node.item_count(); ++i) {
        const Key key = node.key(i);
        CW_ASSERT(node.lower_bound(key) == i);
        CW_ASSERT(i == 0 || node.key(i - 1) < key);
        if (!node.is_leaf()) {
            CW_ASSERT(node.child_for(key) == i && node.child(i).address.valid());
            CW_ASSERT(node.child(i).generation <= node.block_ref().generation);
            continue;
        }
        const std::span<const std::byte> payload = node.payload(i);
        CW_ASSERT(payload.size() <= kMaxItemBytes && payload.data() >= node.content().data());
        CW_ASSERT(payload.data() + payload.size() <= node.content().data() + node.content().size());
    }
    CW_ASSERT(node.lower_bound(kMinKey) == 0 && node.lower_bound(kMaxKey) <= node.item_count());
    CW_ASSERT(node.is_leaf() || node.child_for(kMaxKey) < node.item_count());
}

class CountingVisitor : public TreeVisitor {
public:
    void node(const Node& node) override
    {
        ++nodes;
        walk_items(node);
    }
    void item(const Key& /*key*/, std::span<const std::byte> /*payload*/) override { ++items; }
    void problem(const std::string& /*text*/) override { ++problems; }

    uint64_t nodes = 0, items = 0, problems = 0;
};

// What is not a tree may end early; what is one has the same items in both directions.
void walk_tree(NodeCache& cache, const TreeRoot& root, const CountingVisitor& seen)
{
    constexpr uint64_t kItemsMax = kNodesMax * kMaxChildren * kNodeRoomBytes / sizeof(DiskLeafItem);
    const bool whole = seen.problems == 0;
    TreeCursor cursor(cache, root);
    uint64_t forward = 0;
    Status status = cursor.seek(kMinKey);
    for (; status.ok() && cursor.valid(); status = cursor.next())
        CW_ASSERT(++forward <= kItemsMax && cursor.payload().size() <= kMaxItemBytes);
    CW_ASSERT(!whole || (status.ok() && forward == seen.items));
    uint64_t backward = 0;
    status = cursor.seek_before(kMaxKey);
    for (; status.ok() && cursor.valid(); status = cursor.prev())
        CW_ASSERT(++backward <= kItemsMax);
    CW_ASSERT(!whole || (status.ok() && backward == seen.items));
}

// A commit on top of it, as a mount would make one.
void change_tree(NodeCache& cache, const TreeRoot& root)
{
    const Result<Ref<const Node>> node = cache.get(root.root, root.tree_id, -1);
    if (!node.ok())
        return;
    const std::array<std::byte, 100> value{};
    const Key first = (*node)->key(0);
    const Key behind = next_key((*node)->key((*node)->item_count() - 1));
    std::vector<TreeUpdate> updates{{first, TreeUpdate::Kind::kErase, {}}};
    if (first < behind)
        updates.push_back({behind, TreeUpdate::Kind::kPut, value});
    CowTree tree(cache, root);
    if (!tree.apply(updates, nullptr).ok())
        return;
    std::vector<VolumeAddress> addresses;
    for (size_t index = 0; index < tree.unassigned_count(); ++index)
        addresses.push_back(address_of(100 + index));
    tree.assign(addresses);
    std::vector<Ref<const Node>> nodes;
    const Result<TreeRoot> sealed = tree.seal(root.root.generation.next(), fuzz_uuid(), nodes);
    CW_ASSERT(!sealed.ok() || nodes.size() == addresses.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
{
    FuzzStore store({data, size});
    const TreeRoot root = store.root();
    NodeCache cache(store, fuzz_uuid(), 64 * kNodeBytes);
    CountingVisitor visitor;
    if (!check_tree(cache, root, visitor).ok())
        return 0;
    walk_tree(cache, root, visitor);
    // The generation of a root is no newer than the superblock, which ends well below the largest.
    if (root.root.generation.value <= kMaxGeneration)
        change_tree(cache, root);
    return 0;
}
