// SPDX-License-Identifier: MIT
#include "fs/file_extents.h"

#include <algorithm>

#include "fs/files/extents.h"

namespace cowraid {

namespace {

std::vector<MemberPart> places_of(const Array& array, VolumeAddress address)
{
    std::vector<MemberPart> places;
    const Ref<const ArrayGroup> group = array.group_at(address);
    if (!group || !group->has_data(address, 1))
        return places;
    const BlockPlace place = place_of(group->geometry, address - group->record.address);
    for (uint32_t copy = 0; copy < group->geometry.copies; ++copy) {
        const uint32_t column = group_column(group->geometry, place.stripe, place.column, copy);
        places.push_back({group->record.columns[column].member,
                          group->locate(column, column_offset(group->geometry, place)).offset, kBlockBytes});
    }
    return places;
}

// The extent in pieces that each lie together, until there are `most` in all.
Status add_extent(Filesystem& filesystem, const View& view, const FileExtent& extent, size_t most,
                  FileExtents& out)
{
    const uint64_t offset = extent.file_block * kBlockBytes;
    const uint64_t bytes = uint64_t{extent.block_count} * kBlockBytes;
    const bool reserved = extent.kind == ExtentKind::kReserved;
    if (reserved || extent.is_inline()) {
        out.extents.push_back({.offset = offset,
                               .bytes = bytes,
                               .stored_bytes = reserved ? bytes : extent.inline_frame.size(),
                               .reserved = reserved,
                               .compressed = extent.is_inline(),
                               .inline_frame = extent.is_inline(),
                               .logical = {},
                               .physical = {},
                               .places = {}});
        return {};
    }
    std::vector<RemappedRun> runs;
    const uint64_t neighbours = extent.compressed() ? 1 : extent.block_count;
    CW_TRY(filesystem.store.remap.resolve(view, extent.address, neighbours, runs));
    for (const RemappedRun& run : runs) {
        if (out.extents.size() >= most)
            break;
        out.extents.push_back({.offset = offset + (run.logical.value - extent.address.value),
                               .bytes = extent.compressed() ? bytes : run.block_count * kBlockBytes,
                               .stored_bytes = extent.compressed()
                                                   ? uint64_t{extent.stored_blocks()} * kBlockBytes
                                                   : run.block_count * kBlockBytes,
                               .compressed = extent.compressed(),
                               .logical = run.logical,
                               .physical = run.physical,
                               .places = places_of(filesystem.volume->array(), run.physical)});
    }
    return {};
}

}  // namespace

Result<FileExtents> list_file_extents(Filesystem& filesystem, InodeNumber number, uint64_t from_block,
                                      size_t most)
{
    if (from_block >= kMaxFileBlocks)
        return Err::kInvalid;
    const Result<Ref<Inode>> found = filesystem.files.inodes.get(number);
    if (!found.ok())
        return found.err() == Err::kNotFound ? Err::kStale : found.err();
    Inode& inode = **found;
    FileExtents out;
    std::vector<FileExtent> extents;
    View view;
    {
        MutexLock lock(inode.mutex);
        if (!inode.attributes.is_regular())
            return inode.attributes.is_directory() ? Err::kIsDirectory : Err::kInvalid;
        out.size_bytes = inode.attributes.size_bytes;
        view = filesystem.store.items.view();
        CW_TRY(find_extents(filesystem.store.items, view, number, from_block, kMaxFileBlocks - from_block,
                            extents, most));
    }
    for (const FileExtent& extent : extents) {
        if (out.extents.size() >= most)
            break;
        const uint64_t before = from_block - std::min(from_block, extent.file_block);
        CW_TRY(add_extent(filesystem, view, extent.slice(before, extent.block_count - before), most, out));
    }
    if (out.extents.size() >= most)
        out.next_block = (out.extents.back().offset + out.extents.back().bytes) / kBlockBytes;
    return out;
}

}  // namespace cowraid
