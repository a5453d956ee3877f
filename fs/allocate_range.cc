// SPDX-License-Identifier: MIT
// fallocate: promising space, punching holes, zeroing ranges.
#include <fcntl.h>
#include <linux/falloc.h>

#include <algorithm>

#include "fs/commit.h"
#include "fs/extents.h"
#include "fs/file_blocks.h"
#include "fs/flush.h"
#include "fs/namespace.h"
#include "fs/operation.h"

namespace cowraid {

namespace {

constexpr uint64_t kPieceBlocks = 64 * kMiB / kBlockBytes;
constexpr uint32_t kPieceItems = 512;

struct Range {
    uint64_t first_block;
    uint64_t end_block;
};

// Holes of the stored mapping inside the range, at most kPieceItems of them.
Result<std::vector<Range>> find_holes(FilesystemCore& core, const View& view, InodeNumber inode, Range range)
{
    std::vector<FileExtent> extents;
    CW_TRY(find_extents(core.store, view, inode, range.first_block, range.end_block - range.first_block,
                        extents));
    std::vector<Range> holes;
    uint64_t block = range.first_block;
    for (const FileExtent& extent : extents) {
        if (extent.file_block > block)
            holes.push_back({block, extent.file_block});
        block = std::max(block, extent.end());
    }
    if (block < range.end_block)
        holes.push_back({block, range.end_block});
    return holes;
}

uint64_t total_blocks(const std::vector<Range>& ranges)
{
    uint64_t total = 0;
    for (const Range& range : ranges)
        total += range.end_block - range.first_block;
    return total;
}

// Reserves the holes of one piece. The promise of `blocks_promised` is used or returned.
Status reserve_piece(FilesystemCore& core, Inode& inode, Range piece)
{
    const uint64_t promised = piece.end_block - piece.first_block;
    wait_for_flush(core, inode);
    CW_TRY(promise_data(core, promised));
    Operation operation(core);
    Status status = operation.begin(Operation::Kind::kGrow, kPieceItems);
    if (!status.ok()) {
        core.space.return_data(promised);
        return status;
    }
    MutexLock lock(inode.mutex);
    const View view = core.store.view();
    Result<std::vector<Range>> holes = inode.flushing.empty() ? find_holes(core, view, inode.number, piece)
                                                              : Result<std::vector<Range>>(Err::kBusy);
    if (!holes.ok()) {
        core.space.return_data(promised);
        return holes.err();
    }
    ExtentEditor editor(core, operation.transaction(), view, inode);
    for (const Range& hole : *holes)
        CW_TRY(editor.map({hole.first_block,
                           static_cast<uint32_t>(hole.end_block - hole.first_block),
                           ExtentKind::kReserved,
                           {},
                           {}}));
    const uint64_t reserved = total_blocks(*holes);
    core.space.return_data(promised - reserved);
    core.reserved_blocks.fetch_add(static_cast<int64_t>(reserved));
    inode.attributes.data_blocks += reserved;
    operation.store(inode);
    return {};
}

Status unmap_piece(FilesystemCore& core, Inode& inode, Range piece)
{
    wait_for_flush(core, inode);
    Operation operation(core);
    CW_TRY(operation.begin(Operation::Kind::kShrink, kPieceItems));
    MutexLock lock(inode.mutex);
    if (!inode.flushing.empty())
        return Err::kBusy;
    erase_dirty(core, inode, piece.first_block, piece.end_block - piece.first_block);
    Unmapped removed;
    {
        ExtentEditor editor(core, operation.transaction(), core.store.view(), inode);
        CW_TRY(editor.unmap(piece.first_block, piece.end_block - piece.first_block, removed));
    }
    return_reserved(core, removed.reserved_blocks);
    inode.attributes.data_blocks -= removed.data_blocks + removed.reserved_blocks;
    inode.attributes.modified = inode.attributes.changed = current_time();
    operation.store(inode);
    return {};
}

using PieceFunction = Status (*)(FilesystemCore&, Inode&, Range);

Status for_pieces(FilesystemCore& core, Inode& inode, Range range, PieceFunction function)
{
    for (uint64_t block = range.first_block; block < range.end_block;) {
        const uint64_t end = std::min(range.end_block, block + kPieceBlocks);
        const Status status = function(core, inode, {block, end});
        if (status.err() == Err::kBusy)
            continue;  // a flush began in between
        CW_TRY(status);
        block = end;
    }
    return {};
}

Status set_size_at_least(FilesystemCore& core, Inode& inode, uint64_t size)
{
    Operation operation(core);
    CW_TRY(operation.begin(Operation::Kind::kGrow, 1));
    MutexLock lock(inode.mutex);
    if (inode.attributes.size_bytes >= size)
        return {};
    inode.attributes.size_bytes = size;
    inode.attributes.modified = inode.attributes.changed = current_time();
    operation.store(inode);
    return {};
}

// Writes zeros over the parts of edge blocks, inside the file only.
Status zero_bytes(FilesystemCore& core, Inode& inode, uint64_t from, uint64_t to)
{
    static const std::byte zeros[kBlockBytes] = {};
    {
        MutexLock lock(inode.mutex);
        to = std::min(to, inode.attributes.size_bytes);
    }
    if (from >= to)
        return {};
    const Result<size_t> written = write_file(core, inode.number, from, {zeros, to - from}, {}, Caller{});
    return written.status();
}

// Zeroes [offset, end): edge blocks by writing, whole blocks by unmapping them.
Status clear_range(FilesystemCore& core, Inode& inode, uint64_t offset, uint64_t end)
{
    const Range whole{divide_up(offset, kBlockBytes), end / kBlockBytes};
    if (whole.first_block >= whole.end_block && offset / kBlockBytes == (end - 1) / kBlockBytes)
        return zero_bytes(core, inode, offset, end);
    CW_TRY(zero_bytes(core, inode, offset, whole.first_block * kBlockBytes));
    CW_TRY(for_pieces(core, inode, whole, unmap_piece));
    return zero_bytes(core, inode, whole.end_block * kBlockBytes, end);
}

}  // namespace

Status allocate_range(FilesystemCore& core, InodeNumber number, int mode, uint64_t offset, uint64_t length)
{
    if (length == 0 || offset > INT64_MAX || length > INT64_MAX - offset)
        return length == 0 ? Err::kInvalid : Err::kFileTooBig;
    const bool keep_size = (mode & FALLOC_FL_KEEP_SIZE) != 0;
    const int action = mode & ~FALLOC_FL_KEEP_SIZE;
    if ((action != 0 && action != FALLOC_FL_PUNCH_HOLE && action != FALLOC_FL_ZERO_RANGE) ||
        (action == FALLOC_FL_PUNCH_HOLE && !keep_size))
        return Err::kUnsupported;
    CW_ASSIGN(const Ref<Inode> inode, core.inodes.get(number));
    {
        MutexLock lock(inode->mutex);
        if (!inode->attributes.is_regular())
            return inode->attributes.is_directory() ? Err::kIsDirectory : Err::kInvalid;
    }
    const uint64_t end = offset + length;
    if (action != 0)
        CW_TRY(clear_range(core, *inode, offset, end));
    if (action != FALLOC_FL_PUNCH_HOLE) {
        const Range blocks{offset / kBlockBytes, divide_up(end, kBlockBytes)};
        CW_TRY(for_pieces(core, *inode, blocks, reserve_piece));
        if (!keep_size)
            CW_TRY(set_size_at_least(core, *inode, end));
    }
    return {};
}

}  // namespace cowraid
