// SPDX-License-Identifier: MIT
#include "fs/maintain/damaged_files.h"

#include <algorithm>

#include "base/buffer.h"
#include "btree/key_range.h"
#include "btree/tree.h"
#include "format/extent_codec.h"
#include "format/member_layout.h"
#include "format/name_codec.h"

namespace cowraid {

namespace {

// Calls `visit` with each name of the inode until it returns false.
template <typename Visit>
void for_links(NodeCache& cache, const TreeRoot& files, InodeNumber inode, Visit visit)
{
    const Key first = link_key(inode, 0);
    TreeCursor cursor(cache, files);
    if (!cursor.seek(first).ok())
        return;
    while (cursor.valid() && cursor.key().object == first.object && cursor.key().type == first.type) {
        const Result<InodeLink> link = decode_link(cursor.payload());
        if (!link.ok() || !visit(*link) || !cursor.next().ok())
            return;
    }
}

struct DirectoryPath {
    std::string path = "/";  // what was looked up
    bool from_root = false;
};

DirectoryPath directory_path(NodeCache& cache, const TreeRoot& files, InodeNumber directory)
{
    constexpr int kDepthMax = 256;  // a damaged tree may have a cycle
    DirectoryPath found;
    for (int depth = 0; directory.value != kRootInode; ++depth) {
        bool named = false;
        for_links(cache, files, directory, [&](const InodeLink& link) {
            found.path.insert(0, "/" + link.name);
            directory = link.parent;
            named = true;
            return false;
        });
        if (!named || depth == kDepthMax)
            return found;
    }
    found.from_root = true;
    return found;
}

}  // namespace

std::vector<std::string> paths_of(NodeCache& cache, const TreeRoot& files, InodeNumber inode,
                                  size_t& bytes_left)
{
    std::vector<std::string> paths;
    bool all = true;
    for_links(cache, files, inode, [&](const InodeLink& link) {
        const DirectoryPath directory = directory_path(cache, files, link.parent);
        const size_t bytes = directory.path.size() + link.name.size();
        all = bytes <= bytes_left;
        if (!all)
            return false;
        bytes_left -= bytes;
        if (directory.from_root)
            paths.push_back(directory.path + link.name);
        return true;
    });
    if (!all)
        bytes_left = 0;
    if (paths.empty() || !all)
        paths.push_back("inode " + std::to_string(inode.value));
    return paths;
}

void DamagedFileSearch::item(const Key& key, std::span<const std::byte> payload)
{
    if (key.type != static_cast<uint8_t>(ItemType::kExtent))
        return;
    if (key.object != file_.inode.value)
        end();
    file_.inode = {key.object};
    const Result<FileExtent> extent = decode_extent(key.offset / kBlockBytes, payload);
    std::vector<RemappedRun> runs;
    if (!extent.ok() || extent->kind != ExtentKind::kData)
        return;
    const uint32_t walked_blocks = extent->compressed() ? 1 : extent->block_count;
    if (walked_blocks > blocks_left_)
        return;
    blocks_left_ -= walked_blocks;
    for (const StoredRun& stored : extent->stored_runs())
        if (!remap_.resolve(view_, stored.address, stored.block_count, runs).ok())
            return;
    if (extent->compressed()) {
        const bool lost = std::any_of(runs.begin(), runs.end(), [&](const RemappedRun& run) {
            return next_lost(run.physical, run.block_count).count > 0;
        });
        if (lost)
            add_lost(extent->file_block, extent->block_count);
        return;
    }
    uint64_t file_block = extent->file_block;
    for (const RemappedRun& run : runs) {
        uint64_t done = 0;
        while (done < run.block_count) {
            const LostBlocks found = next_lost(run.physical + done * kBlockBytes, run.block_count - done);
            if (found.count == 0)
                break;
            add_lost(file_block + done + found.first, found.count);
            done += found.first + found.count;
        }
        file_block += run.block_count;
    }
}

void DamagedFileSearch::add_lost(uint64_t file_block, uint64_t block_count)
{
    if (file_.blocks == 0)
        file_.range.first = file_block * kBlockBytes;
    file_.blocks += block_count;
    file_.range.last = (file_block + block_count) * kBlockBytes - 1;
}

void DamagedFileSearch::end()
{
    if (file_.blocks > 0)
        found(file_);
    file_ = {};
}

namespace {

class ListedDamage final : public DamagedFileSearch {
public:
    ListedDamage(Store& store, const View& view, size_t lines_max, InodeNumber after, DamagedFiles& out)
        : DamagedFileSearch(store.remap, view, raw_blocks(store.volume.member_table())),
          store_(store),
          runs_(store.damage.runs()),
          lines_max_(lines_max),
          after_(after),
          out_(out)
    {
    }

private:
    LostBlocks next_lost(VolumeAddress physical, uint64_t block_count) override
    {
        const auto run =
            std::upper_bound(runs_.begin(), runs_.end(), physical,
                             [](VolumeAddress at, const DamagedRun& listed) { return at < listed.end(); });
        const VolumeAddress end = physical + block_count * kBlockBytes;
        if (run == runs_.end() || run->first >= end)
            return {};
        const VolumeAddress first = std::max(run->first, physical);
        return {(first - physical) / kBlockBytes, (std::min(run->end(), end) - first) / kBlockBytes};
    }
    void found(const DamagedFile& file) override
    {
        if (file.inode.value <= after_.value)
            return;
        ++out_.file_count;
        if (out_.files.size() == lines_max_ || path_bytes_left_ == 0)
            return;
        std::vector<std::string> paths =
            paths_of(store_.cache, store_.timeline.view().committed->file_tree, file.inode, path_bytes_left_);
        if (path_bytes_left_ == 0 && !out_.files.empty())
            return;  // not all names: the first of those that are asked for next
        out_.files.push_back(file);
        out_.files.back().paths = std::move(paths);
    }

    Store& store_;
    const std::vector<DamagedRun> runs_;
    const size_t lines_max_;
    const InodeNumber after_;
    size_t path_bytes_left_ = kDamagedPathBytesMax;
    DamagedFiles& out_;
};

}  // namespace

bool is_lost(Store& store, VolumeAddress address, AlignedBuffer& memory)
{
    const Result<bool> used = store.allocator.is_used(address);
    if (!store.volume.array().group_at(address) || (used.ok() && !*used))
        return false;
    BlockExpectation expected;
    const View view = store.timeline.view();
    if (!used.ok() || !store.checksums.lookup(view, address, std::span(&expected, 1)).ok() || !expected.known)
        return true;
    ReadPiece piece{.address = address,
                    .block_count = 1,
                    .memory = memory.data(),
                    .checksums = &expected.checksum,
                    .result = {}};
    return !store.volume.array().read(std::span(&piece, 1), &memory).ok();
}

namespace {

// Reads no leaves.
void find_damaged_nodes(Store& store, const TreeRoot& tree, const BlockRef& ref, int level,
                        const KeyRange& range, const DamagedNode& found, size_t lines_max, DamagedFiles& out)
{
    if (store.damage.touches(ref.address, ref.address + kNodeBytes)) {
        if (++out.node_count <= lines_max)
            out.nodes.push_back(found);
        return;
    }
    const Result<Ref<const Node>> read =
        level == 0 ? Err::kNotFound : read_inside(store.cache, ref, tree.tree_id, level, range);
    for (uint32_t child = 0; read.ok() && !(*read)->is_leaf() && child < (*read)->item_count(); ++child) {
        const KeyRange below = child_range(**read, child, range);
        find_damaged_nodes(store, tree, (*read)->child(child), static_cast<int>((*read)->level()) - 1, below,
                           {found.tree, {below.low.object}, {std::min(below.high.object, kToTheEnd)}},
                           lines_max, out);
    }
}

}  // namespace

Result<DamagedFiles> find_damaged_files(Store& store, size_t lines_max, InodeNumber after)
{
    DamagedFiles out;
    if (store.damage.empty())
        return out;
    const View view = store.timeline.view();
    ListedDamage search(store, view, lines_max, after, out);
    CW_TRY(check_tree(store.cache, view.committed->file_tree, search));
    search.end();
    if (after.value != 0)
        return out;
    for (uint8_t index = 0; index < kTreeCount; ++index) {
        const auto which = static_cast<TreeIndex>(index);
        const TreeRoot& tree = view.committed->tree(which);
        if (tree.root.address.valid())
            find_damaged_nodes(store, tree, tree.root, -1, KeyRange(), {which, {0}, {kToTheEnd}}, lines_max,
                               out);
    }
    return out;
}

DamagedBlocks damaged_blocks(Store& store)
{
    DamagedBlocks blocks;
    if (store.damage.empty())
        return blocks;
    for (const DamagedRun& run : store.damage.runs()) {
        const Ref<const ArrayGroup> group = store.volume.array().group_at(run.first);
        blocks.all += run.block_count;
        blocks.of_nodes += group && group->record.content != kGroupData ? run.block_count : 0;
    }
    return blocks;
}

}  // namespace cowraid
