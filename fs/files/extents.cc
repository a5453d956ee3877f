// SPDX-License-Identifier: MIT
#include "fs/files/extents.h"

#include <algorithm>

namespace cowraid {

namespace {

// Where extents begin that reach to `block`: no kind is longer. Farther back there may be many erased ones.
Key reach_floor(InodeNumber inode, uint64_t block)
{
    return extent_key(inode, block - std::min<uint64_t>(block, kMaxExtentBlocks));
}

// The part of `extent` in [first_block, end), with which it overlaps.
FileExtent cut_of(const FileExtent& extent, uint64_t first_block, uint64_t end)
{
    const uint64_t from = std::max(extent.file_block, first_block);
    return extent.slice(from - extent.file_block, std::min(extent.end(), end) - from);
}

}  // namespace

Status find_extents(const ItemStore& store, const View& view, InodeNumber inode, uint64_t first_block,
                    uint64_t block_count, std::vector<FileExtent>& out, size_t most)
{
    out.clear();
    const Key first = extent_key(inode, first_block);
    Key found;
    ItemBytes payload;
    const Status before =
        store.last_at_or_before(view, first, reach_floor(inode, first_block), found, payload);
    if (before.ok() && found != first) {
        CW_ASSIGN(FileExtent extent, decode_extent(found.offset / kBlockBytes, payload));
        if (extent.end() > first_block)
            out.push_back(extent);
    } else if (!before.ok() && before.err() != Err::kNotFound) {
        return before;
    }
    ItemScan scan(store, view, first, extent_key(inode, first_block + block_count - 1));
    Status status;
    while (out.size() < most && (status = scan.next()).ok()) {
        if (scan.key().offset % kBlockBytes != 0)
            return Err::kCorrupt;
        CW_ASSIGN(FileExtent extent, decode_extent(scan.key().offset / kBlockBytes, scan.value()));
        if (!out.empty() && out.back().end() > extent.file_block)
            return Err::kCorrupt;
        out.push_back(extent);
    }
    return status.err() == Err::kNotFound ? Status() : status;
}

Status first_extent(const ItemStore& store, const View& view, InodeNumber inode, uint64_t first_block,
                    FileExtent& out)
{
    std::vector<FileExtent> there;
    CW_TRY(find_extents(store, view, inode, first_block, kMaxFileBlocks - first_block, there, 1));
    if (there.empty())
        return Err::kNotFound;
    out = there.front();
    return {};
}

bool FramesSeen::add(const FileExtent& part)
{
    std::erase_if(parts_, [&](const FileExtent& seen) {
        return seen.frame_start() + kFrameBlocksMax <= part.file_block ||
               seen.frame_start() > part.file_block;
    });
    if (std::any_of(parts_.begin(), parts_.end(),
                    [&](const FileExtent& seen) { return seen.same_frame(part); }))
        return false;
    parts_.push_back(part);
    return true;
}

uint64_t return_reserved(Files& files, uint64_t blocks)
{
    int64_t counted = files.reserved_blocks.load(std::memory_order_relaxed);
    int64_t part = 0;
    do {
        part = std::min(counted, static_cast<int64_t>(blocks));
    } while (!files.reserved_blocks.compare_exchange_weak(counted, counted - part));
    files.store.ledger.release_data(static_cast<uint64_t>(part));
    return static_cast<uint64_t>(part);
}

ExtentEditor::ExtentEditor(Files& files, Transaction& transaction, View view, Inode& inode)
    : files_(files), transaction_(transaction), view_(std::move(view)), inode_(inode)
{
    inode_.extent_version.fetch_add(1, std::memory_order_acq_rel);
}

ExtentEditor::~ExtentEditor()
{
    inode_.extent_version.fetch_add(1, std::memory_order_acq_rel);
}

void ExtentEditor::put(const FileExtent& extent)
{
    transaction_.dirty = true;
    transaction_.items.put(extent_key(inode_.number, extent.file_block), encode_extent(extent));
}

Result<bool> ExtentEditor::frame_stays(const FileExtent& extent, uint64_t first_block, uint64_t end) const
{
    const uint64_t frame_end = extent.frame_start() + kFrameBlocksMax;
    std::vector<FileExtent> others;
    const auto stays_in = [&](uint64_t from, uint64_t to) -> Result<bool> {
        if (from >= to)
            return false;
        CW_TRY(find_extents(files_.store.items, view_, inode_.number, from, to - from, others));
        return std::any_of(others.begin(), others.end(),
                           [&](const FileExtent& other) { return other.same_frame(extent); });
    };
    CW_ASSIGN(const bool before, stays_in(extent.frame_start(), first_block));
    return before ? Result<bool>(true) : stays_in(end, std::min(frame_end, kMaxFileBlocks));
}

Result<bool> ExtentEditor::find_freed(const FileExtent& extent, std::span<const FileExtent> later,
                                      uint64_t first_block, uint64_t end,
                                      std::vector<RemappedRun>& places) const
{
    const FileExtent going = cut_of(extent, first_block, end);
    if (extent.compressed()) {
        if (std::any_of(later.begin(), later.end(),
                        [&](const FileExtent& other) { return other.same_frame(extent); }))
            return false;
        CW_ASSIGN(const bool stays, frame_stays(extent, first_block, end));
        if (stays)
            return false;
    }
    for (const StoredRun& run : going.stored_runs())
        CW_TRY(find_physical(files_.store, view_, run.address, run.block_count, places));
    return true;
}

Status ExtentEditor::unmap(uint64_t first_block, uint64_t block_count, Unmapped& removed)
{
    const uint64_t end = first_block + block_count;
    std::vector<FileExtent> overlapping;
    CW_TRY(find_extents(files_.store.items, view_, inode_.number, first_block, block_count, overlapping));
    // All that has to be read is read before anything changes.
    std::vector<RemappedRun> places;
    struct Freed {
        bool any;
        size_t places_end;
    };
    std::vector<Freed> all_freed;
    for (size_t i = 0; i < overlapping.size(); ++i) {
        CW_ASSIGN(const bool any, find_freed(overlapping[i], std::span(overlapping).subspan(i + 1),
                                             first_block, end, places));
        all_freed.push_back({any, places.size()});
    }
    size_t freed = 0;
    for (size_t i = 0; i < overlapping.size(); ++i) {
        const FileExtent& extent = overlapping[i];
        const auto going = std::span(places).subspan(freed, all_freed[i].places_end - freed);
        CW_TRY(free_physical(files_.store, transaction_, going));
        freed = all_freed[i].places_end;
        for (const RemappedRun& run : going)
            removed.data_blocks += run.block_count;
        if (extent.compressed()) {
            transaction_.compressed_file_blocks -= cut_of(extent, first_block, end).block_count;
            if (all_freed[i].any) {
                removed.data_blocks += extent.is_inline() ? 1 : 0;
                transaction_.compressed_blocks -= extent.counted_blocks();
                transaction_.freed_frame_runs += going.empty() ? 0 : going.size() - 1;
            }
        }
        if (extent.kind == ExtentKind::kReserved)
            removed.reserved_blocks += cut_of(extent, first_block, end).block_count;
        if (extent.file_block < first_block)
            put(extent.slice(0, first_block - extent.file_block));
        else
            transaction_.items.erase(extent_key(inode_.number, extent.file_block));
        if (extent.end() > end)
            put(extent.slice(end - extent.file_block, extent.end() - end));
        transaction_.dirty = true;
    }
    return {};
}

Status ExtentEditor::map(const FileExtent& extent)
{
    FileExtent joined = extent;
    if (extent.file_block > 0 && !extent.compressed()) {
        Key found;
        ItemBytes payload;
        const Status before = files_.store.items.last_at_or_before(
            view_, extent_key(inode_.number, extent.file_block - 1),
            reach_floor(inode_.number, extent.file_block), found, payload);
        if (!before.ok() && before.err() != Err::kNotFound)
            return before;
        if (before.ok()) {
            CW_ASSIGN(FileExtent previous, decode_extent(found.offset / kBlockBytes, payload));
            const bool adjoins =
                previous.kind == extent.kind && !previous.compressed() &&
                previous.end() == extent.file_block &&
                (extent.kind == ExtentKind::kReserved ||
                 previous.address + uint64_t{previous.block_count} * kBlockBytes == extent.address);
            // Groups may lie side by side in the address space; an extent stays inside one.
            const bool same_group = extent.kind == ExtentKind::kReserved ||
                                    files_.store.volume.array().group_at(previous.address) ==
                                        files_.store.volume.array().group_at(extent.address);
            if (adjoins && same_group && previous.block_count + extent.block_count <= kMaxExtentBlocks) {
                joined = previous;
                joined.block_count += extent.block_count;
                joined.generation = extent.generation;
            }
        }
    }
    if (extent.compressed()) {
        transaction_.compressed_file_blocks += extent.block_count;
        transaction_.compressed_blocks += extent.counted_blocks();
    }
    put(joined);
    return {};
}

}  // namespace cowraid
