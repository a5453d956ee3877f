// SPDX-License-Identifier: MIT
#include "tools/cowraid/tree_dump.h"

#include <cinttypes>
#include <cstring>
#include <vector>

#include "base/print.h"
#include "btree/node.h"
#include "format/to_text.h"
#include "format/tree_codec.h"
#include "fs/txn/block_state.h"

namespace cowraid {

namespace {

constexpr uint32_t kLevelsMax = 16;

template <typename Item> std::string text_of(std::span<const std::byte> payload)
{
    Item item;
    if (payload.size() < sizeof item)
        return "too short";
    std::memcpy(&item, payload.data(), sizeof item);
    return to_text(item);
}

// What follows the fixed part, where that is a name.
template <typename Item> std::string named(std::span<const std::byte> payload)
{
    std::string text = text_of<Item>(payload);
    if (payload.size() <= sizeof(Item))
        return text;
    text += " name '";
    for (const std::byte byte : payload.subspan(sizeof(Item))) {
        const auto c = static_cast<unsigned char>(byte);
        text += c >= ' ' && c < 127 ? std::string(1, static_cast<char>(c)) : text_format("\\x%02x", c);
        if (text.size() > 512)
            break;
    }
    return text + "'";
}

class TreeDump {
public:
    TreeDump(Volume& volume, const TreeDumpOptions& options, FILE* out)
        : reader_(volume.array()), uuid_(volume.identity().uuid), options_(options), out_(out)
    {
    }
    // Trees that the root tree names are appended, unless that is null.
    void tree(const char* name, const TreeRoot& root, std::vector<TreeRoot>* named_trees)
    {
        trees_ = named_trees;
        quiet_ = !options_.tree.empty() && options_.tree != name;
        if (!quiet_)
            print_line(out_, "%s tree: %s", name, to_text(root.root).c_str());
        if (root.root.address.valid() && (!quiet_ || trees_ != nullptr))
            node(root.tree_id, root.root, -1, 0);
    }

private:
    void node(uint64_t tree_id, const BlockRef& ref, int level, uint32_t depth);
    void leaf(const Node& node);

    ArrayNodeReader reader_;
    const Uuid uuid_;
    const TreeDumpOptions options_;
    FILE* const out_;
    bool quiet_ = false;
    std::vector<TreeRoot>* trees_ = nullptr;
};

void TreeDump::leaf(const Node& node)
{
    for (uint32_t index = 0; index < node.item_count(); ++index) {
        const Key key = node.key(index);
        const std::span<const std::byte> payload = node.payload(index);
        if (!quiet_ && !options_.headers_only)
            print_line(out_, "  item %u key (%" PRIu64 " %u %" PRIu64 ") bytes %zu: %s", index, key.object,
                       key.type, key.offset, payload.size(), item_text(key, payload).c_str());
        if (trees_ == nullptr || key.type != static_cast<uint8_t>(ItemType::kTreeRoot))
            continue;
        if (const Result<BlockRef> root = decode_tree_root(payload); root.ok())
            trees_->push_back({key.object, *root});
    }
}

void TreeDump::node(uint64_t tree_id, const BlockRef& ref, int level, uint32_t depth)
{
    AlignedBuffer buffer(kNodeBytes);
    const Status status = reader_.read_node(ref, tree_id, buffer);
    const Result<Ref<const Node>> parsed =
        status.ok() ? Node::parse(std::move(buffer), ref, uuid_, tree_id, level) : status.err();
    if (!parsed.ok() || depth > kLevelsMax) {
        print_line(out_, "node %" PRIu64 " of tree %" PRIu64 ": %s", ref.address.value, tree_id,
                   parsed.ok() ? "too deep" : err_text(parsed.err()));
        return;
    }
    const Node& here = **parsed;
    if (!quiet_)
        print_line(out_, "%s %" PRIu64 " level %u items %u generation %" PRIu64 " tree %" PRIu64,
                   here.is_leaf() ? "leaf" : "node", ref.address.value, here.level(), here.item_count(),
                   ref.generation.value, tree_id);
    if (here.is_leaf()) {
        leaf(here);
        return;
    }
    for (uint32_t index = 0; index < here.item_count(); ++index) {
        const Key key = here.key(index);
        if (!quiet_ && !options_.headers_only)
            print_line(out_, "  key (%" PRIu64 " %u %" PRIu64 ") %s", key.object, key.type, key.offset,
                       to_text(here.child(index)).c_str());
    }
    for (uint32_t index = 0; index < here.item_count(); ++index)
        node(tree_id, here.child(index), static_cast<int>(here.level()) - 1, depth + 1);
}

struct TreeName {
    uint64_t id;
    const char* name;
};
constexpr TreeName kTreeNames[] = {{kRootTree, "root"},
                                   {kChecksumTree, "checksum"},
                                   {kFreeSpaceTree, "free-space"},
                                   {kRemapTree, "remap"},
                                   {kFirstFileTree, "file"}};

}  // namespace

std::string item_text(const Key& key, std::span<const std::byte> payload)
{
    switch (static_cast<ItemType>(key.type)) {
    case ItemType::kTreeRoot:
        return text_of<DiskTreeRoot>(payload);
    case ItemType::kVolume:
        return text_of<DiskVolume>(payload);
    case ItemType::kInode:
        return text_of<DiskInode>(payload);
    case ItemType::kLink:
        return named<DiskLink>(payload);
    case ItemType::kDirent:
        return named<DiskDirent>(payload);
    case ItemType::kXattr:
        return text_of<DiskXattr>(payload);
    case ItemType::kSymlink:
        return text_format("target of %zu bytes", payload.size());
    case ItemType::kExtent:
        return text_of<DiskExtent>(payload);
    case ItemType::kOrphan:
        return "orphan";
    case ItemType::kDamaged:
        return text_of<DiskDamage>(payload);
    case ItemType::kChecksums:
        return text_of<DiskChecksumWindow>(payload);
    case ItemType::kGroupSummary:
        return text_of<DiskGroupSummary>(payload);
    case ItemType::kSpaceWindow:
        return text_of<DiskSpaceWindow>(payload);
    case ItemType::kMovedTo:
    case ItemType::kMovedFrom:
        return text_of<DiskRemapWindow>(payload);
    }
    return "unknown type";
}

Status dump_trees(Volume& volume, const TreeDumpOptions& options, FILE* out)
{
    TreeDump dump(volume, options, out);
    std::vector<TreeRoot> trees;
    dump.tree("root", {kRootTree, volume.superblock().root}, &trees);
    bool found = options.tree.empty() || options.tree == "root";
    for (const TreeRoot& tree : trees)
        for (const TreeName& known : kTreeNames)
            if (known.id == tree.tree_id && known.id != kRootTree) {
                dump.tree(known.name, tree, nullptr);
                found = found || options.tree == known.name;
            }
    return found ? Err::kOk : Err::kNotFound;
}

}  // namespace cowraid
