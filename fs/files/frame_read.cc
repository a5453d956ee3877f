// SPDX-License-Identifier: MIT
#include "fs/files/frame_read.h"

#include <cstring>

#include "base/zstd_frame.h"

namespace cowraid {

Status find_physical(Store& store, const View& view, std::vector<StoredPiece>& pieces)
{
    const auto may_have_moved = [&](const StoredPiece& piece) {
        return store.remap.may_have_moved(piece.address);
    };
    if (std::none_of(pieces.begin(), pieces.end(), may_have_moved))
        return {};
    std::vector<StoredPiece> placed;
    std::vector<RemappedRun> runs;
    for (const StoredPiece& piece : pieces) {
        runs.clear();
        CW_TRY(store.remap.resolve(view, piece.address, piece.block_count, runs));
        std::byte* memory = piece.memory;
        for (const RemappedRun& run : runs) {
            placed.push_back({run.physical, run.block_count, memory});
            memory += run.block_count * kBlockBytes;
        }
    }
    pieces = std::move(placed);
    return {};
}

Status read_pieces(Store& store, const View& view, const std::vector<StoredPiece>& stored,
                   AlignedBuffer* lease, std::vector<ReadPiece>& out)
{
    std::vector<std::vector<Checksum>> checksums(stored.size());
    out.assign(stored.size(), {});
    std::vector<BlockExpectation> expected;
    for (size_t i = 0; i < stored.size(); ++i) {
        expected.assign(stored[i].block_count, {});
        CW_TRY(store.checksums.lookup(view, stored[i].address, expected));
        checksums[i].reserve(expected.size());
        for (const BlockExpectation& expectation : expected) {
            if (!expectation.known)
                return Err::kCorrupt;
            checksums[i].push_back(expectation.checksum);
        }
        out[i].address = stored[i].address;
        out[i].block_count = static_cast<uint32_t>(stored[i].block_count);
        out[i].memory = stored[i].memory;
        out[i].checksums = checksums[i].data();
    }
    const Status status = store.volume.array().read(out, lease);
    for (ReadPiece& piece : out) {
        note_lost(store, piece);
        piece.checksums = nullptr;
    }
    return status;
}

void FrameReads::add(const FileExtent& part, std::byte* memory)
{
    if (!parts_.empty() && parts_.back().extent.same_frame(part)) {
        parts_.push_back({part, memory, parts_.back().stored_offset});
        return;
    }
    parts_.push_back({part, memory, stored_bytes_});
    stored_bytes_ += size_t{part.stored_blocks()} * kBlockBytes;  // none of an inline frame
}

Status FrameReads::find(Store& store, const View& view)
{
    if (stored_bytes_ == 0)
        return {};
    stored_ = AlignedBuffer(stored_bytes_);
    size_t offset = 0;
    for (const Part& part : parts_) {
        if (part.stored_offset != offset)
            continue;  // the frame of the part before it
        for (const StoredRun& run : part.extent.frame) {
            pieces_.push_back({run.address, run.block_count, stored_.data() + offset});
            offset += size_t{run.block_count} * kBlockBytes;
        }
    }
    return find_physical(store, view, pieces_);
}

Status decompress_part(const FileExtent& part, std::span<const std::byte> stored, std::byte* memory)
{
    const size_t skipped = size_t{part.offset_blocks} * kBlockBytes;
    const size_t wanted = size_t{part.block_count} * kBlockBytes;
    CW_ASSIGN(const uint64_t content_bytes, zstd_content_bytes(stored));
    if (content_bytes > size_t{kFrameBlocksMax} * kBlockBytes || content_bytes < skipped + wanted)
        return Err::kCorrupt;
    if (content_bytes == wanted) {
        CW_ASSIGN(const size_t bytes, decompress_zstd(stored, {memory, wanted}));
        return bytes == wanted ? Status() : Status(Err::kCorrupt);
    }
    thread_local AlignedBuffer content(size_t{kFrameBlocksMax} * kBlockBytes);
    CW_ASSIGN(const size_t bytes, decompress_zstd(stored, content.span()));
    if (bytes != content_bytes)
        return Err::kCorrupt;
    std::memcpy(memory, content.data() + skipped, wanted);
    return {};
}

Status FrameReads::read(Store& store, const View& view, const std::byte* request, LostBlocks& lost)
{
    if (parts_.empty())
        return {};
    std::vector<ReadPiece> read;
    const Status status = pieces_.empty() ? Status() : read_pieces(store, view, pieces_, &stored_, read);
    if (status.ok()) {
        for (const Part& part : parts_) {
            const std::span<const std::byte> in_blocks =
                stored_.span().subspan(part.stored_offset, size_t{part.extent.stored_blocks()} * kBlockBytes);
            CW_TRY(decompress_part(part.extent,
                                   part.extent.is_inline() ? std::span(part.extent.inline_frame) : in_blocks,
                                   part.memory));
        }
        return {};
    }
    // All that a frame holds is lost with any block of it.
    for (const Part& part : parts_) {
        const std::byte* const begin = stored_.data() + part.stored_offset;
        const std::byte* const end = begin + size_t{part.extent.stored_blocks()} * kBlockBytes;
        const bool bad = std::any_of(read.begin(), read.end(), [&](const ReadPiece& piece) {
            return piece.result.err() == Err::kTooManyFaults && piece.memory >= begin && piece.memory < end;
        });
        if (!bad)
            continue;
        const uint64_t first = static_cast<uint64_t>(part.memory - request) / kBlockBytes;
        lost.add(first, first + part.extent.block_count - 1, part.extent.block_count);
    }
    return status;
}

}  // namespace cowraid
