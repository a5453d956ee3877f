// SPDX-License-Identifier: MIT
// Reading file data: memory first (dirty, then flushing), then extents, verified and healed by the array.
#include <algorithm>
#include <cstring>
#include <ctime>

#include "base/log_count.h"
#include "fs/files/extents.h"
#include "fs/files/file_blocks.h"
#include "fs/files/files.h"
#include "fs/files/frame_read.h"

namespace cowraid {

namespace {

// Retries while a flush changes the mapping under the reader, before it takes the inode's mutex.
constexpr int kUnlockedAttempts = 4;

// A range of whole blocks and the memory it is read into.
struct BlockRange {
    uint64_t first_block;
    uint64_t block_count;
    std::byte* memory;
};

// Copies what is in memory; what is not becomes a gap. Requires the inode's mutex.
void copy_cached(const DirtyMap& map, const BlockRange& range, std::vector<BlockRange>& gaps)
{
    uint64_t block = range.first_block;
    const uint64_t end = range.first_block + range.block_count;
    for (auto at = map.first_ending_after(block); at != map.extents().end() && at->first < end; ++at) {
        if (at->first > block) {
            gaps.push_back(
                {block, at->first - block, range.memory + (block - range.first_block) * kBlockBytes});
            block = at->first;
        }
        const uint64_t stop = std::min(end, at->first + at->second.block_count);
        std::memcpy(range.memory + (block - range.first_block) * kBlockBytes,
                    at->second.block(static_cast<uint32_t>(block - at->first)), (stop - block) * kBlockBytes);
        block = stop;
    }
    if (block < end)
        gaps.push_back({block, end - block, range.memory + (block - range.first_block) * kBlockBytes});
}

std::vector<BlockRange> copy_from_memory(Inode& inode, const BlockRange& range)
{
    inode.mutex.assert_held();
    std::vector<BlockRange> not_dirty;
    copy_cached(inode.dirty, range, not_dirty);
    std::vector<BlockRange> gaps;
    for (const BlockRange& gap : not_dirty)
        copy_cached(inode.flushing, gap, gaps);
    return gaps;
}

// A request reads no more of frames than that at a time: of many frames it may want two blocks each. Every
// serving thread may do so.
size_t frame_bytes_max(const Store& store)
{
    constexpr uint64_t kLeast = 128 * kKiB, kMost = 4 * kMiB;
    return std::clamp(store.options.memory_bytes / 1024, kLeast, kMost);
}

// What of a range is stored.
struct StoredRange {
    std::vector<StoredPiece> pieces;  // as they are
    FrameReads frames;
};

// Stored pieces of one gap; everything else of it is zeroed.
void place_extents(const std::vector<FileExtent>& extents, const BlockRange& gap, StoredRange& stored)
{
    uint64_t block = gap.first_block;
    const uint64_t end = gap.first_block + gap.block_count;
    const auto zero_until = [&](uint64_t stop) {
        if (stop > block)
            std::memset(gap.memory + (block - gap.first_block) * kBlockBytes, 0,
                        (stop - block) * kBlockBytes);
        block = std::max(block, stop);
    };
    for (const FileExtent& extent : extents) {
        if (extent.kind != ExtentKind::kData)
            continue;
        zero_until(std::min(end, std::max(extent.file_block, block)));
        const uint64_t stop = std::min(end, extent.end());
        if (stop <= block)
            continue;
        const FileExtent part = extent.slice(block - extent.file_block, stop - block);
        std::byte* const memory = gap.memory + (block - gap.first_block) * kBlockBytes;
        if (part.compressed())
            stored.frames.add(part, memory);
        else
            stored.pieces.push_back({part.address, part.block_count, memory});
        block = stop;
    }
    zero_until(end);
}

Status find_pieces(Store& store, const View& view, InodeNumber inode, const std::vector<BlockRange>& gaps,
                   StoredRange& stored)
{
    stored = {};
    std::vector<FileExtent> extents;
    for (const BlockRange& gap : gaps) {
        CW_TRY(find_extents(store.items, view, inode, gap.first_block, gap.block_count, extents));
        place_extents(extents, gap, stored);
    }
    if (stored.frames.stored_bytes() > frame_bytes_max(store))
        return Err::kTooBig;
    CW_TRY(stored.frames.find(store, view));
    return find_physical(store, view, stored.pieces);
}

// Resolves the range: memory copied, holes zeroed, the rest as stored pieces that `view` keeps in place.
// `size_bytes`: of the file as it is in `view`.
Status resolve(Store& store, Inode& inode, const BlockRange& range, View& view, StoredRange& stored,
               uint64_t& size_bytes)
{
    for (int attempt = 0; attempt < kUnlockedAttempts; ++attempt) {
        std::vector<BlockRange> gaps;
        uint64_t version;
        {
            MutexLock lock(inode.mutex);
            version = inode.extent_version;
            size_bytes = inode.attributes.size_bytes;
            gaps = copy_from_memory(inode, range);
            view = store.items.view();
        }
        if (gaps.empty()) {
            stored = {};
            return {};
        }
        const Status status = find_pieces(store, view, inode.number, gaps, stored);
        if (inode.extent_version == version)
            return status;
    }
    MutexLock lock(inode.mutex);
    size_bytes = inode.attributes.size_bytes;
    const std::vector<BlockRange> gaps = copy_from_memory(inode, range);
    view = store.items.view();
    return find_pieces(store, view, inode.number, gaps, stored);
}

void log_damage(Store& store, InodeNumber inode, uint64_t first, uint64_t last, uint64_t count, Err err)
{
    log_count(LogLevel::kError, path_for_message(store, inode),
              err == Err::kCorrupt ? "blocks without a checksum" : "blocks that cannot be read", count,
              {.first = first * kBlockBytes, .last = (last + 1) * kBlockBytes - 1});
}

}  // namespace

Status read_file_blocks(Store& store, Inode& inode, uint64_t first_block, uint64_t block_count,
                        std::byte* memory, AlignedBuffer* lease, uint64_t* size_bytes)
{
    View view;
    uint64_t size = 0;
    StoredRange stored;
    LostBlocks lost;
    Status status = resolve(store, inode, {first_block, block_count, memory}, view, stored, size);
    if (status == Status(Err::kTooBig)) {
        // Each half in memory of its own: what is read first would move with the lease of the other.
        const uint64_t half = block_count / 2;
        for (const auto& [first, count] : {std::pair(uint64_t{0}, half), {half, block_count - half}}) {
            AlignedBuffer part(count * kBlockBytes);
            CW_TRY(
                read_file_blocks(store, inode, first_block + first, count, part.data(), &part, size_bytes));
            std::memcpy(memory + first * kBlockBytes, part.data(), count * kBlockBytes);
        }
        return {};
    }
    if (size_bytes != nullptr)
        *size_bytes = std::min(*size_bytes, size);
    // Frames first: what is in `memory` moves with a lease.
    if (status.ok())
        status = stored.frames.read(store, view, memory, lost);
    if (status.ok() && !stored.pieces.empty()) {
        std::vector<ReadPiece> pieces;
        status = read_pieces(store, view, stored.pieces, lease, pieces);
        for (size_t i = 0; i < pieces.size(); ++i)
            if (pieces[i].result.err() == Err::kTooManyFaults)
                lost.add(static_cast<uint64_t>(stored.pieces[i].memory - memory) / kBlockBytes, pieces[i]);
    }
    if (!status.ok() && lost.count > 0)
        log_damage(store, inode.number, first_block + lost.first, first_block + lost.last, lost.count,
                   status.err());
    else if (!status.ok())
        log_damage(store, inode.number, first_block, first_block + block_count - 1, block_count,
                   status.err());
    return status;
}

Result<std::span<const std::byte>> Files::read(InodeNumber number, uint64_t offset, size_t bytes,
                                               AlignedBuffer& memory)
{
    CW_ASSIGN(const Ref<Inode> inode, inodes.get(number));
    uint64_t size;
    {
        MutexLock lock(inode->mutex);
        if (inode->attributes.is_directory())
            return Err::kIsDirectory;
        size = inode->attributes.size_bytes;
    }
    if (offset >= size || bytes == 0)
        return std::span<const std::byte>();
    bytes = std::min<uint64_t>(bytes, size - offset);
    const uint64_t first_block = offset / kBlockBytes;
    const uint64_t block_count = divide_up(offset + bytes, kBlockBytes) - first_block;
    if (memory.size() < block_count * kBlockBytes)
        memory = AlignedBuffer(block_count * kBlockBytes);
    // What was cut off meanwhile reads as zeros, and is no content.
    CW_TRY(read_file_blocks(store, *inode, first_block, block_count, memory.data(), &memory, &size));
    bytes = std::min<uint64_t>(bytes, size > offset ? size - offset : 0);
    return std::span<const std::byte>(memory.span().subspan(offset % kBlockBytes, bytes));
}

Result<size_t> Files::read(InodeNumber number, uint64_t offset, std::span<std::byte> out)
{
    AlignedBuffer memory;
    CW_ASSIGN(const std::span<const std::byte> content, read(number, offset, out.size(), memory));
    std::copy(content.begin(), content.end(), out.begin());
    return content.size();
}

}  // namespace cowraid
