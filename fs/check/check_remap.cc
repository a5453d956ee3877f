// SPDX-License-Identifier: MIT
// The remap tree: both directions agree, one step leads to a block, and every entry is some file's.
#include "format/items.h"
#include "format/window_codec.h"
#include "fs/check/check_passes.h"

namespace cowraid {

namespace {

// Hands every run of entries of a window on.
class RemapWalk : public TreeVisitor {
public:
    explicit RemapWalk(CheckContext& context) : context_(context) { }

    void item(const Key& key, std::span<const std::byte> payload) final
    {
        BlockWindow window;
        const auto type = static_cast<ItemType>(key.type);
        if ((type != ItemType::kMovedTo && type != ItemType::kMovedFrom) || key.offset != 0 ||
            key.object % kChecksumWindowBytes != 0 || key.object >= kMaxVolumeAddress ||
            !decode_remap_window(payload, window)) {
            bad_item(key);
            return;
        }
        for (size_t bit = 0; bit < kChecksumWindowBlocks;) {
            if ((window.mask >> bit & 1) == 0) {
                ++bit;
                continue;
            }
            const size_t first = bit++;
            while (bit < kChecksumWindowBlocks && (window.mask >> bit & 1) != 0 &&
                   window.values[bit] == window.values[first] + (bit - first) * kBlockBytes)
                ++bit;
            entries(type, {key.object + first * kBlockBytes}, {window.values[first]}, bit - first);
        }
    }

protected:
    virtual void bad_item(const Key& key) = 0;
    // Blocks from `address` on have entries that count up from `other`.
    virtual void entries(ItemType type, VolumeAddress address, VolumeAddress other, uint64_t count) = 0;

    CheckContext& context_;
};

// The first walk: the tree by itself and against the map.
class RemapEntries final : public RemapWalk {
public:
    explicit RemapEntries(CheckContext& context) : RemapWalk(context), watch_(context, kGroupSystem) { }

    void node(const Node& node) override { watch_.node(node); }
    void problem(const std::string& text) override { watch_.problem(text); }
    [[nodiscard]] bool whole() const { return watch_.whole(); }

private:
    void bad_item(const Key& key) override
    {
        context_.findings.add("tree", {}, "remap tree: the item (%llu %u %llu) is not one",
                              as_ull(key.object), unsigned{key.type}, as_ull(key.offset));
    }
    void entries(ItemType type, VolumeAddress address, VolumeAddress other, uint64_t count) override
    {
        if (type == ItemType::kMovedTo)
            forward(address, other, count);
        else
            reverse(address, other, count);
    }
    void forward(VolumeAddress logical, VolumeAddress physical, uint64_t count);
    void reverse(VolumeAddress physical, VolumeAddress logical, uint64_t count);

    NodeWatch watch_;
};

void RemapEntries::forward(VolumeAddress logical, VolumeAddress physical, uint64_t count)
{
    context_.moved_blocks += count;
    if (!context_.remap->may_have_moved(logical))
        context_.findings.add("remap", logical,
                              "%llu blocks have entries in a block group that is not emptied", as_ull(count));
    std::vector<VolumeAddress> logicals(count);
    if (!context_.remap->logical_of(context_.view, physical, logicals).ok())
        return;  // the walk meets the node
    for (uint64_t i = 0; i < count; ++i)
        if (logicals[i] != logical + i * kBlockBytes) {
            context_.findings.add("remap", logical + i * kBlockBytes,
                                  "a block was moved to %llu, where another one is said to be",
                                  as_ull(physical.value + i * kBlockBytes));
            break;
        }
    std::vector<RemappedRun> runs;
    if (!context_.remap->resolve(context_.view, physical, count, runs).ok())
        return;
    for (const RemappedRun& run : runs)
        if (run.moved())
            context_.findings.add("remap", logical, "a block was moved to %llu, which has an entry itself",
                                  as_ull(run.logical.value));
}

void RemapEntries::reverse(VolumeAddress physical, VolumeAddress logical, uint64_t count)
{
    std::vector<RemappedRun> runs;
    if (!context_.remap->resolve(context_.view, logical, count, runs).ok())
        return;
    uint64_t done = 0;
    for (const RemappedRun& run : runs) {
        if (!run.moved() || run.physical != physical + done * kBlockBytes) {
            context_.findings.add("remap", physical + done * kBlockBytes,
                                  "a block is said to be that of %llu, which is elsewhere",
                                  as_ull(run.logical.value));
            break;
        }
        done += run.block_count;
    }
}

// The second walk: after the file tree.
class UnusedEntries final : public RemapWalk {
public:
    using RemapWalk::RemapWalk;

    void node(const Node&) override { }
    void problem(const std::string&) override { }
    uint64_t found = 0;

private:
    void bad_item(const Key&) override { }
    void entries(ItemType type, VolumeAddress address, VolumeAddress other, uint64_t count) override
    {
        const BlockCensus::Group* group = context_.census.find(other);
        for (uint64_t i = 0; type == ItemType::kMovedTo && i < count; ++i) {
            const uint64_t block =
                group != nullptr ? (other + i * kBlockBytes - group->address()) / kBlockBytes : 0;
            if (group != nullptr && block < group->geometry().data_blocks() && group->used.test(block))
                continue;
            ++found;
            context_.findings.add("remap", address + i * kBlockBytes,
                                  "an entry for a block that no file refers to");
        }
    }
};

}  // namespace

void check_remap_tree(CheckContext& context, const TreeRoot& tree)
{
    RemapEntries check(context);
    check_tree(context.cache, tree, check).ignore();  // problems went to the visitor
    context.remap_tree_whole = check.whole();
}

void check_remap_use(CheckContext& context, const TreeRoot& tree)
{
    if (!context.file_tree_whole || !context.remap_tree_whole ||
        context.moved_blocks == context.resolved_blocks)
        return;
    UnusedEntries check(context);
    check_tree(context.cache, tree, check).ignore();  // problems were reported by the first walk
    if (check.found == 0)
        context.findings.add("remap", {}, "%llu blocks have entries, files refer to %llu of them",
                             as_ull(context.moved_blocks), as_ull(context.resolved_blocks));
}

}  // namespace cowraid
