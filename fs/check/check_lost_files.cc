// SPDX-License-Identifier: MIT
// Which files hold blocks that redundancy does not bring back. Blocks know no owner: one more walk over the
// file tree, and only when there are such blocks.
#include <algorithm>

#include "base/log_count.h"
#include "btree/tree.h"
#include "fs/check/check_passes.h"
#include "fs/files/extents.h"
#include "fs/names/dirent.h"

namespace cowraid {

namespace {

class LostFileSearch final : public TreeVisitor {
public:
    LostFileSearch(CheckContext& context, const TreeRoot& tree) : context_(context), tree_(tree) { }

    void node(const Node&) override { }
    void problem(const std::string&) override { }
    void item(const Key& key, std::span<const std::byte> payload) override;
    // Reports the file whose extents passed by last.
    void end_file();

private:
    void note_lost(const FileExtent& extent);
    [[nodiscard]] std::string path_of(InodeNumber inode) const;

    CheckContext& context_;
    const TreeRoot tree_;
    InodeNumber inode_;
    uint64_t lost_blocks_ = 0;
    ByteRange range_;
};

void LostFileSearch::item(const Key& key, std::span<const std::byte> payload)
{
    if (key.type != static_cast<uint8_t>(ItemType::kExtent))
        return;
    if (key.object != inode_.value)
        end_file();
    inode_ = {key.object};
    const Result<FileExtent> extent = decode_extent(key.offset / kBlockBytes, payload);
    if (extent.ok() && extent->kind == ExtentKind::kData)
        note_lost(*extent);
}

void LostFileSearch::note_lost(const FileExtent& extent)
{
    std::vector<RemappedRun> runs;
    if (!context_.remap->resolve(context_.view, extent.address, extent.block_count, runs).ok())
        return;
    uint64_t file_block = extent.file_block;
    for (const RemappedRun& run : runs) {
        const BlockCensus::Group* group = context_.census.find(run.physical);
        for (uint64_t block = 0; group != nullptr && block < run.block_count; ++block) {
            const uint64_t index = (run.physical - group->address()) / kBlockBytes + block;
            if (index >= group->lost.bit_count() || !group->lost.test(index))
                continue;
            const uint64_t first = (file_block + block) * kBlockBytes;
            if (lost_blocks_++ == 0)
                range_.first = first;
            range_.last = first + kBlockBytes - 1;
        }
        file_block += run.block_count;
    }
}

std::string LostFileSearch::path_of(InodeNumber inode) const
{
    constexpr int kDepthMax = 256;  // a damaged tree may have a cycle
    std::string path;
    for (int depth = 0; inode.value != kRootInode; ++depth) {
        TreeCursor cursor(context_.cache, tree_);
        const Key first = link_key(inode, 0);
        if (depth == kDepthMax || !cursor.seek(first).ok() || !cursor.valid() ||
            cursor.key().object != first.object || cursor.key().type != first.type)
            return "inode " + std::to_string(inode_.value);
        const Result<InodeLink> link = decode_link(cursor.payload());
        if (!link.ok())
            return "inode " + std::to_string(inode_.value);
        path.insert(0, "/" + link->name);
        inode = link->parent;
    }
    return path;
}

void LostFileSearch::end_file()
{
    if (lost_blocks_ > 0)
        context_.findings.add("file", {}, "%s: lost: %llu block%s, bytes %llu to %llu",
                              path_of(inode_).c_str(), as_ull(lost_blocks_), lost_blocks_ == 1 ? "" : "s",
                              as_ull(range_.first), as_ull(range_.last));
    lost_blocks_ = 0;
}

}  // namespace

void check_lost_files(CheckContext& context, const TreeRoot& file_tree)
{
    const auto& groups = context.census.groups();
    if (std::none_of(groups.begin(), groups.end(),
                     [](const BlockCensus::Group& group) { return group.lost.bit_count() > 0; }))
        return;
    LostFileSearch search(context, file_tree);
    check_tree(context.cache, file_tree, search).ignore();  // what is wrong with it was reported before
    search.end_file();
}

}  // namespace cowraid
