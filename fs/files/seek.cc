// SPDX-License-Identifier: MIT
// SEEK_DATA and SEEK_HOLE: what is in memory counts as well as what is stored.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "fs/files/extents.h"
#include "fs/files/files.h"

namespace cowraid {

namespace {

// As for readers: a flush may change the mapping meanwhile.
constexpr int kUnlockedSeeks = 4;
// Of the stored mapping and of each map in memory, in one step.
constexpr size_t kStepRuns = 256;

// What one step looks at.
struct Found {
    // Blocks that hold data.
    struct Run {
        uint64_t first, end;
    };
    std::vector<Run> runs;
    uint64_t known_to = kMaxFileBlocks;  // behind it there may be more
};

void add_memory(const DirtyMap& map, uint64_t block, Found& found)
{
    size_t left = kStepRuns;
    for (auto at = map.first_ending_after(block); at != map.extents().end(); ++at) {
        found.runs.push_back({at->first, at->first + at->second.block_count});
        if (--left == 0) {
            found.known_to = std::min(found.known_to, found.runs.back().end);
            return;
        }
    }
}

// Reserved blocks hold nothing.
Status add_stored(const Store& store, const View& view, InodeNumber inode, uint64_t block, Found& found)
{
    std::vector<FileExtent> extents;
    CW_TRY(find_extents(store.items, view, inode, block, kMaxFileBlocks - block, extents, kStepRuns));
    for (const FileExtent& extent : extents)
        if (extent.kind == ExtentKind::kData)
            found.runs.push_back({extent.file_block, extent.end()});
    if (extents.size() == kStepRuns)
        found.known_to = std::min(found.known_to, extents.back().end());
    return {};
}

class FileSeek final : public LongSeek {
public:
    FileSeek(Store& store, Ref<Inode> inode, uint64_t offset, uint64_t size, Files::Seek what)
        : LongSeek(offset),
          store_(store),
          inode_(std::move(inode)),
          size_(size),
          what_(what),
          block_(offset / kBlockBytes)
    {
    }
    Result<Progress> step() override
    {
        Found found;
        CW_ASSIGN(const bool whole, look(found));
        if (!whole)
            return Progress::kMore;
        if (!pass(found) && block_ < divide_up(size_, kBlockBytes))
            return Progress::kMore;
        if (what_ == Files::Seek::kData && block_ >= divide_up(size_, kBlockBytes))
            return Err::kNotFound;
        offset_ = std::min(size_, std::max(offset_, block_ * kBlockBytes));
        return Progress::kDone;
    }

private:
    Result<bool> look(Found& found);
    bool pass(Found& found);

    Store& store_;
    const Ref<Inode> inode_;
    const uint64_t size_;
    const Files::Seek what_;
    uint64_t block_;  // all before it is passed
    int disturbed_ = 0;
};

// False: the mapping changed meanwhile.
Result<bool> FileSeek::look(Found& found)
{
    uint64_t version;
    View view;
    {
        MutexLock lock(inode_->mutex);
        version = inode_->extent_version;
        add_memory(inode_->dirty, block_, found);
        add_memory(inode_->flushing, block_, found);
        view = store_.items.view();
        if (disturbed_ == kUnlockedSeeks) {
            CW_TRY(add_stored(store_, view, inode_->number, block_, found));
            return true;
        }
    }
    const Status status = add_stored(store_, view, inode_->number, block_, found);
    const bool whole = inode_->extent_version == version;
    disturbed_ = whole ? 0 : disturbed_ + 1;
    return whole && !status.ok() ? Result<bool>(status.err()) : Result<bool>(whole);
}

// Goes on to the first block that is wanted, or behind all that was found.
bool FileSeek::pass(Found& found)
{
    std::sort(found.runs.begin(), found.runs.end(),
              [](const Found::Run& a, const Found::Run& b) { return a.first < b.first; });
    for (const Found::Run& run : found.runs) {
        if (run.end <= block_)
            continue;
        if (run.first >= found.known_to || (what_ == Files::Seek::kHole && run.first > block_))
            break;
        if (what_ == Files::Seek::kData) {
            block_ = std::max(block_, run.first);
            return true;
        }
        block_ = run.end;
    }
    if (what_ == Files::Seek::kHole)
        return block_ < found.known_to;
    block_ = found.known_to;
    return false;
}

}  // namespace

Result<std::unique_ptr<LongSeek>> Files::begin_seek(InodeNumber number, uint64_t offset, Seek what)
{
    CW_ASSIGN(Ref<Inode> inode, inodes.get(number));
    uint64_t size;
    {
        MutexLock lock(inode->mutex);
        size = inode->attributes.size_bytes;
    }
    if (offset >= size)
        return Err::kNotFound;
    return std::unique_ptr<LongSeek>(std::make_unique<FileSeek>(store, std::move(inode), offset, size, what));
}

Result<uint64_t> Files::seek(InodeNumber number, uint64_t offset, Seek what)
{
    CW_ASSIGN(const std::unique_ptr<LongSeek> seek, begin_seek(number, offset, what));
    CW_TRY(finish_change(*seek));
    return seek->offset();
}

}  // namespace cowraid
