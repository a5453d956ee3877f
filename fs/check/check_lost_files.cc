// SPDX-License-Identifier: MIT
// Which files hold blocks that redundancy does not bring back: one more walk over the file tree, and only
// when there are such blocks.
#include <algorithm>

#include "base/file_name.h"
#include "fs/check/check_passes.h"
#include "fs/maintain/damaged_files.h"

namespace cowraid {

namespace {

class LostFileSearch final : public DamagedFileSearch {
public:
    LostFileSearch(CheckContext& context, const TreeRoot& tree)
        : DamagedFileSearch(*context.remap, context.view, context.raw_blocks), context_(context), tree_(tree)
    {
    }

private:
    LostBlocks next_lost(VolumeAddress physical, uint64_t block_count) override
    {
        const BlockCensus::Group* group = context_.census.find(physical);
        if (group == nullptr)
            return {};
        const uint64_t index = (physical - group->address()) / kBlockBytes;
        const uint64_t end = std::min(index + block_count, group->lost.bit_count());
        const uint64_t first = index < end ? group->lost.next_set(index, end) : end;
        uint64_t behind = first;
        while (behind < end && group->lost.test(behind))
            ++behind;
        return {first - index, behind - first};
    }
    void found(const DamagedFile& file) override
    {
        for (const std::string& path : paths_of(context_.cache, tree_, file.inode, path_bytes_left_))
            context_.findings.add("file", {}, "%s: lost: %llu block%s, bytes %llu to %llu",
                                  escape_file_name(path).c_str(), as_ull(file.blocks),
                                  file.blocks == 1 ? "" : "s", as_ull(file.range.first),
                                  as_ull(file.range.last));
    }

    CheckContext& context_;
    const TreeRoot tree_;
    size_t path_bytes_left_ = kDamagedPathBytesMax;
};

}  // namespace

void check_lost_files(CheckContext& context, const TreeRoot& file_tree)
{
    const auto& groups = context.census.groups();
    if (std::none_of(groups.begin(), groups.end(),
                     [](const BlockCensus::Group& group) { return group.lost.bit_count() > 0; }))
        return;
    LostFileSearch search(context, file_tree);
    check_tree(context.cache, file_tree, search).ignore();  // what is wrong with it was reported before
    search.end();
}

}  // namespace cowraid
