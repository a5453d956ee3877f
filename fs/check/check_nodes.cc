// SPDX-License-Identifier: MIT
// What a check does with every tree node, and the root tree.
#include "base/checksum.h"
#include "format/items.h"
#include "format/tree_codec.h"
#include "fs/check/check_bad_blocks.h"
#include "fs/check/check_passes.h"

namespace cowraid {

namespace {

class RootTreeCheck final : public TreeVisitor {
public:
    explicit RootTreeCheck(CheckContext& context) : context_(context), watch_(context, kGroupSystem) { }

    void node(const Node& node) override { watch_.node(node); }
    void problem(const std::string& text) override { watch_.problem(text); }
    void item(const Key& key, std::span<const std::byte> payload) override;
    CheckedRoots finish();

private:
    void root_item(const Key& key, std::span<const std::byte> payload);
    void counters_item(std::span<const std::byte> payload);
    void expect(const std::optional<TreeRoot>& root, const char* name, bool& whole);

    CheckContext& context_;
    NodeWatch watch_;
    CheckedRoots roots_;
};

void RootTreeCheck::root_item(const Key& key, std::span<const std::byte> payload)
{
    std::optional<TreeRoot>* root = key.object == kFirstFileTree   ? &roots_.file_tree
                                    : key.object == kChecksumTree  ? &roots_.checksum_tree
                                    : key.object == kFreeSpaceTree ? &roots_.space_tree
                                    : key.object == kRemapTree     ? &roots_.remap_tree
                                                                   : nullptr;
    const Result<BlockRef> ref = decode_tree_root(payload);
    if (root == nullptr || key.offset != 0 || !ref.ok()) {
        context_.findings.add("tree", {}, "root tree: a root of an unknown tree %llu, or of wrong size",
                              as_ull(key.object));
        return;
    }
    if (!block_ref_valid(*ref, context_.volume.superblock().root.generation))
        return context_.findings.add("tree", {}, "root tree: the root of tree %llu is no pointer to a node",
                                     as_ull(key.object));
    if (key.object == kRemapTree && !context_.volume.may_have_moved_blocks())
        context_.findings.add("superblock", {}, "there is a remap tree, and no feature says so");
    *root = TreeRoot{key.object, *ref};
}

void RootTreeCheck::counters_item(std::span<const std::byte> payload)
{
    const Result<VolumeCounters> counters = decode_volume_counters(payload);
    if (counters.ok())
        roots_.counters = *counters;
    else
        context_.findings.add("tree", {}, "root tree: the counters of the volume have a wrong size");
}

void RootTreeCheck::item(const Key& key, std::span<const std::byte> payload)
{
    if (key.type == static_cast<uint8_t>(ItemType::kTreeRoot))
        root_item(key, payload);
    else if (key == volume_key())
        counters_item(payload);
    else
        context_.findings.add("tree", {}, "root tree: an item of unknown type %u", unsigned{key.type});
}

void RootTreeCheck::expect(const std::optional<TreeRoot>& root, const char* name, bool& whole)
{
    if (root)
        return;
    whole = context_.trees_whole = false;
    if (watch_.whole())
        context_.findings.add("tree", {}, "root tree: the root of the %s tree is not there", name);
}

CheckedRoots RootTreeCheck::finish()
{
    expect(roots_.file_tree, "file", context_.file_tree_whole);
    expect(roots_.checksum_tree, "checksum", context_.checksum_tree_whole);
    expect(roots_.space_tree, "free-space", context_.space_tree_whole);
    if (!roots_.counters && watch_.whole())
        context_.findings.add("tree", {}, "root tree: the counters of the volume are not there");
    return roots_;
}

}  // namespace

void NodeWatch::node(const Node& node)
{
    const BlockRef& ref = node.block_ref();
    ++context_.report().nodes;
    if (ref.generation > context_.generation())
        context_.findings.add("tree", ref.address, "tree %llu: a node of commit %llu, the last one is %llu",
                              as_ull(node.tree_id()), as_ull(ref.generation.value),
                              as_ull(context_.generation().value));
    const BlockCensus::Claimed claimed = context_.census.claim(ref.address, kNodeBlocks, content_);
    if (claimed.claim != BlockCensus::Claim::kTaken)
        context_.findings.add("tree", ref.address, "tree %llu: a node %s", as_ull(node.tree_id()),
                              claim_text(claimed.claim));
    check_copies(node);
}

// Reading was content with one copy.
void NodeWatch::check_copies(const Node& node)
{
    const BlockRef& ref = node.block_ref();
    const BlockCensus::Group* group = context_.census.find(ref.address);
    // Parity covers these blocks: they are looked at with all others.
    if (group == nullptr || (group->geometry().parity > 0 && context_.options.verify_data))
        return;
    std::vector<BadBlock> bad;
    if (!context_.volume.array().check_copies(ref.address, ref.checksums, bad).ok())
        return;  // an address that claim() has complained about
    std::vector<ExaminedBlock> examined;
    for (const BadBlock& block : bad)
        examined.push_back({block, true});  // the node is here, so enough of it is right
    report_bad_blocks(context_, "tree", "tree node", std::move(examined));
}

void NodeWatch::problem(const std::string& text)
{
    whole_ = context_.trees_whole = false;
    context_.findings.add({.kind = "tree", .text = text});
}

CheckedRoots check_root_tree(CheckContext& context)
{
    const BlockRef& root = context.volume.superblock().root;
    RootTreeCheck check(context);
    if (root.address.valid())
        check_tree(context.cache, {kRootTree, root}, check).ignore();  // problems went to the visitor
    return check.finish();
}

}  // namespace cowraid
