// SPDX-License-Identifier: MIT
// Extents of a replay: parts of those that the last commit has, or reservations. What is left of none is
// free.
#include <algorithm>
#include <utility>

#include "format/items.h"
#include "fs/commit/replay.h"
#include "fs/files/extents.h"

namespace cowraid {

namespace {

// Whether `part` is a part of `whole`: the same blocks of the file at the same addresses.
bool is_part(const FileExtent& part, const FileExtent& whole)
{
    if (whole.kind != ExtentKind::kData || whole.generation != part.generation ||
        part.file_block < whole.file_block || part.end() > whole.end() ||
        part.compressed() != whole.compressed())
        return false;
    return part.compressed()
               ? part.same_frame(whole)
               : part.address == whole.address + (part.file_block - whole.file_block) * kBlockBytes;
}

}  // namespace

// An extent of the records themselves.
Status ReplayedState::validate_extent(const Key& key)
{
    ItemBytes payload;
    if (view_.open->items.get(key, payload) != ItemState::kPresent)
        return {};
    const InodeNumber inode{key.object};
    CW_ASSIGN(const FileExtent extent, decode_extent(key.offset / kBlockBytes, payload));
    // With the block before it, so that one which reaches into it is met too: overlaps are kCorrupt.
    const uint64_t before = extent.file_block > 0 ? 1 : 0;
    std::vector<FileExtent> extents;
    CW_TRY(find_extents(committer_.store.items, view_, inode, extent.file_block - before,
                        extent.block_count + before, extents));
    if (extents.empty() || extents.back().file_block != extent.file_block)
        return Err::kCorrupt;
    if (extent.kind == ExtentKind::kReserved)
        return {};
    CW_TRY(
        find_extents(committer_.store.items, before_, inode, extent.file_block, extent.block_count, extents));
    return extents.size() == 1 && is_part(extent, extents.front()) ? Status() : Status(Err::kCorrupt);
}

// `old`: a part of a frame, `extents` what is there now.
Status ReplayedState::settle_old_frame(const Key& key, const FileExtent& old,
                                       const std::vector<FileExtent>& extents)
{
    gone_file_blocks_ += old.block_count;
    for (const FileExtent& extent : extents) {
        if (extent.kind != ExtentKind::kData)
            continue;
        if (!is_part(extent, old))
            return Err::kCorrupt;
        gone_file_blocks_ -= extent.block_count;
    }
    const uint64_t start = old.frame_start();
    const uint64_t block_count = std::min<uint64_t>(kFrameBlocksMax, kMaxFileBlocks - start);
    const auto is_same = [&](const FileExtent& extent) {
        return extent.same_frame(old);
    };
    std::vector<FileExtent> parts;
    CW_TRY(find_extents(committer_.store.items, view_, {key.object}, start, block_count, parts));
    // Small files with the same content have the same inline frame.
    if (std::exchange(frames_inode_, key.object) != key.object)
        freed_frames_ = {};
    if (std::any_of(parts.begin(), parts.end(), is_same) || !freed_frames_.add(old))
        return {};
    gone_blocks_ += old.counted_blocks();
    for (const StoredRun& run : old.frame)
        freed_.push_back({run.address, run.block_count});
    return {};
}

// An extent of the last commit that the records change: notes what they do not refer to any more.
Status ReplayedState::settle_old_extent(const Key& key)
{
    ItemBytes payload;
    const Status found = committer_.store.items.get(before_, key, payload);
    if (!found.ok())
        return found.err() == Err::kNotFound ? Status() : found;
    CW_ASSIGN(const FileExtent old, decode_extent(key.offset / kBlockBytes, payload));
    if (old.kind != ExtentKind::kData)
        return {};
    std::vector<FileExtent> extents;
    // Others that overlap it are damage, and each would be looked at with all that follow.
    CW_TRY(find_extents(committer_.store.items, before_, {key.object}, old.file_block, old.block_count,
                        extents));
    if (extents.size() != 1)
        return Err::kCorrupt;
    CW_TRY(
        find_extents(committer_.store.items, view_, {key.object}, old.file_block, old.block_count, extents));
    if (old.compressed())
        return settle_old_frame(key, old, extents);
    uint64_t block = old.file_block;
    const auto free_up_to = [&](uint64_t end) {
        if (block < end)
            freed_.push_back({old.address + (block - old.file_block) * kBlockBytes, end - block});
    };
    for (const FileExtent& extent : extents) {
        if (extent.kind != ExtentKind::kData)
            continue;
        if (!is_part(extent, old))
            return Err::kCorrupt;
        free_up_to(extent.file_block);
        block = extent.end();
    }
    free_up_to(old.end());
    return {};
}

}  // namespace cowraid
