// SPDX-License-Identifier: MIT
#include "tools/cowraid/tree_dump.h"

#include <cinttypes>
#include <cstring>
#include <set>
#include <utility>

#include "base/print.h"
#include "btree/node.h"
#include "control/volume_json.h"
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

struct TreeName {
    uint64_t id;
    const char* name;
};
constexpr TreeName kTreeNames[] = {{kRootTree, "root"},
                                   {kChecksumTree, "checksum"},
                                   {kFreeSpaceTree, "free-space"},
                                   {kRemapTree, "remap"},
                                   {kFirstFileTree, "file"}};

Json key_json(const Key& key)
{
    Json out = json_make_array();
    for (const uint64_t part : {key.object, uint64_t{key.type}, key.offset})
        json_array_append_new(out.get(), json_integer(static_cast<json_int_t>(part)));
    return out;
}

// A JSON object is printed node by node: a volume may have more of them than memory has room for.
class TreeDump {
public:
    TreeDump(Volume& volume, const TreeDumpOptions& options, FILE* out)
        : reader_(volume.array()), uuid_(volume.identity().uuid), options_(options), out_(out)
    {
    }
    void begin(Generation commit);
    void tree(const char* name, const TreeRoot& root);
    void end();
    // Trees that the root tree names. Prints nothing.
    std::vector<TreeRoot> named_trees(const TreeRoot& root);
    // Some of the root tree could not be read.
    [[nodiscard]] bool root_torn() const { return root_torn_; }
    [[nodiscard]] uint64_t unreadable() const { return unreadable_; }

private:
    [[nodiscard]] bool json() const { return options_.format == OutputFormat::kJson; }
    Result<Ref<const Node>> read(uint64_t tree_id, const BlockRef& ref, int level);
    void node(uint64_t tree_id, const BlockRef& ref, int level, uint32_t depth);
    void print_node(uint64_t tree_id, const BlockRef& ref, const Node& node);
    void print_node_json(const BlockRef& ref, const Node& node);
    void print_unreadable(uint64_t tree_id, const BlockRef& ref, const char* why);
    // One of several that stand in a list.
    void print_member(const json_t* value);
    void find_trees(const BlockRef& ref, int level, uint32_t depth, std::vector<TreeRoot>& trees);

    ArrayNodeReader reader_;
    const Uuid uuid_;
    const TreeDumpOptions options_;
    FILE* const out_;
    bool first_tree_ = true, first_node_ = true, root_torn_ = false;
    uint64_t unreadable_ = 0;
    std::set<VolumeAddress> seen_;  // nodes of the tree at hand
};

void TreeDump::begin(Generation commit)
{
    if (!json()) {
        print_line(out_, "commit %" PRIu64 "%s", commit.value,
                   options_.mounted ? " of a mounted volume, which may have newer ones by now" : "");
        return;
    }
    Json head = json_with_schema("inspect-tree");
    json_put_text(head.get(), "uuid", uuid_text(uuid_));
    json_put_integer(head.get(), "generation", commit.value);
    json_put_flag(head.get(), "mounted", options_.mounted);
    std::string text = json_print(head.get());
    text.pop_back();
    print_line(out_, "%s, \"trees\": [", text.c_str());
}

void TreeDump::end()
{
    if (json())
        print_line(out_, "]}");
}

void TreeDump::tree(const char* name, const TreeRoot& root)
{
    seen_.clear();
    if (json()) {
        Json head = json_make_object();
        json_put_text(head.get(), "name", name);
        json_put_integer(head.get(), "tree", root.tree_id);
        json_put_integer(head.get(), "address", root.root.address.value);
        json_put_integer(head.get(), "generation", root.root.generation.value);
        std::string text = json_print(head.get());
        text.pop_back();
        print_line(out_, "%s%s, \"nodes\": [", first_tree_ ? "" : ",", text.c_str());
    } else {
        print_line(out_, "%s tree: %s", name, to_text(root.root).c_str());
    }
    first_tree_ = false;
    first_node_ = true;
    if (root.root.address.valid())
        node(root.tree_id, root.root, -1, 0);
    if (json())
        print_line(out_, "]}");
}

void TreeDump::print_member(const json_t* value)
{
    print_line(out_, "%s%s", first_node_ ? "" : ",", json_print(value).c_str());
    first_node_ = false;
}

void TreeDump::print_unreadable(uint64_t tree_id, const BlockRef& ref, const char* why)
{
    ++unreadable_;
    if (!json()) {
        print_line(out_, "node %" PRIu64 " of tree %" PRIu64 ": %s", ref.address.value, tree_id, why);
        return;
    }
    Json line = json_make_object();
    json_put_integer(line.get(), "address", ref.address.value);
    json_put_integer(line.get(), "generation", ref.generation.value);
    json_put_text(line.get(), "error", why);
    print_member(line.get());
}

void TreeDump::print_node_json(const BlockRef& ref, const Node& node)
{
    Json line = json_make_object();
    json_put_integer(line.get(), "address", ref.address.value);
    json_put_integer(line.get(), "generation", ref.generation.value);
    json_put_integer(line.get(), "level", node.level());
    json_put_integer(line.get(), "item_count", node.item_count());
    Json items = json_make_array();
    for (uint32_t index = 0; index < node.item_count() && !options_.headers_only; ++index) {
        Json item = json_make_object();
        const Key key = node.key(index);
        json_put(item.get(), "key", key_json(key));
        if (node.is_leaf()) {
            json_put_integer(item.get(), "bytes", node.payload(index).size());
            json_put_text(item.get(), "text", item_text(key, node.payload(index)));
        } else {
            json_put_integer(item.get(), "address", node.child(index).address.value);
            json_put_integer(item.get(), "generation", node.child(index).generation.value);
        }
        json_array_append_new(items.get(), item.release());
    }
    if (!options_.headers_only)
        json_put(line.get(), "items", std::move(items));
    print_member(line.get());
}

void TreeDump::print_node(uint64_t tree_id, const BlockRef& ref, const Node& node)
{
    if (json())
        return print_node_json(ref, node);
    print_line(out_, "%s %" PRIu64 " level %u items %u generation %" PRIu64 " tree %" PRIu64,
               node.is_leaf() ? "leaf" : "node", ref.address.value, node.level(), node.item_count(),
               ref.generation.value, tree_id);
    for (uint32_t index = 0; index < node.item_count() && !options_.headers_only; ++index) {
        const Key key = node.key(index);
        if (node.is_leaf())
            print_line(out_, "  item %u key (%" PRIu64 " %u %" PRIu64 ") bytes %zu: %s", index, key.object,
                       key.type, key.offset, node.payload(index).size(),
                       item_text(key, node.payload(index)).c_str());
        else
            print_line(out_, "  key (%" PRIu64 " %u %" PRIu64 ") %s", key.object, key.type, key.offset,
                       to_text(node.child(index)).c_str());
    }
}

Result<Ref<const Node>> TreeDump::read(uint64_t tree_id, const BlockRef& ref, int level)
{
    AlignedBuffer buffer(kNodeBytes);
    CW_TRY(reader_.read_node(ref, tree_id, buffer));
    return Node::parse(std::move(buffer), ref, uuid_, tree_id, level);
}

void TreeDump::node(uint64_t tree_id, const BlockRef& ref, int level, uint32_t depth)
{
    const Result<Ref<const Node>> parsed = read(tree_id, ref, level);
    if (!parsed.ok() || depth > kLevelsMax) {
        print_unreadable(tree_id, ref, parsed.ok() ? "too deep" : err_text(parsed.err()));
        return;
    }
    // In a crafted one many children may be the same node.
    if (!seen_.insert(ref.address).second) {
        print_unreadable(tree_id, ref, "met before");
        return;
    }
    const Node& here = **parsed;
    print_node(tree_id, ref, here);
    for (uint32_t index = 0; index < here.item_count() && !here.is_leaf(); ++index)
        node(tree_id, here.child(index), static_cast<int>(here.level()) - 1, depth + 1);
}

void TreeDump::find_trees(const BlockRef& ref, int level, uint32_t depth, std::vector<TreeRoot>& trees)
{
    const Result<Ref<const Node>> parsed = read(kRootTree, ref, level);
    const bool good = parsed.ok() && depth <= kLevelsMax && seen_.insert(ref.address).second;
    root_torn_ = root_torn_ || !good;
    if (!good)
        return;
    const Node& here = **parsed;
    for (uint32_t index = 0; index < here.item_count(); ++index) {
        if (!here.is_leaf())
            find_trees(here.child(index), static_cast<int>(here.level()) - 1, depth + 1, trees);
        else if (here.key(index).type == static_cast<uint8_t>(ItemType::kTreeRoot))
            if (const Result<BlockRef> root = decode_tree_root(here.payload(index)); root.ok())
                trees.push_back({here.key(index).object, *root});
    }
}

std::vector<TreeRoot> TreeDump::named_trees(const TreeRoot& root)
{
    std::vector<TreeRoot> trees = {root};
    seen_.clear();
    if (root.root.address.valid())
        find_trees(root.root, -1, 0, trees);
    return trees;
}

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

std::vector<std::string> tree_names()
{
    std::vector<std::string> names;
    for (const TreeName& tree : kTreeNames)
        names.emplace_back(tree.name);
    return names;
}

Result<uint64_t> dump_trees(Volume& volume, const TreeDumpOptions& options, FILE* out)
{
    TreeDump dump(volume, options, out);
    std::vector<std::pair<const char*, TreeRoot>> wanted;
    for (const TreeRoot& tree : dump.named_trees({kRootTree, volume.superblock().root}))
        for (const TreeName& known : kTreeNames)
            if (known.id == tree.tree_id && (options.tree.empty() || options.tree == known.name ||
                                             (known.id == kRootTree && dump.root_torn())))
                wanted.emplace_back(known.name, tree);
    if (wanted.empty())
        return Err::kNotFound;
    dump.begin(volume.superblock().generation);
    for (const auto& [name, tree] : wanted)
        dump.tree(name, tree);
    dump.end();
    return dump.unreadable() + (dump.root_torn() ? 1 : 0);
}

}  // namespace cowraid
