// SPDX-License-Identifier: MIT
#include "fs/files/flush_stream.h"

#include <algorithm>
#include <utility>

namespace cowraid {

FlushStream::FlushStream(Files& files, std::span<const Ref<Inode>> inodes, uint64_t inline_bytes)
    : files_(files), choice_(files.store.live.compression), inline_bytes_(inline_bytes)
{
    for (const Ref<Inode>& inode : inodes) {
        MutexLock lock(inode->mutex);
        const bool compress = is_to_compress(choice_, inode->attributes.flags);
        for (const auto& [file_block, extent] : inode->flushing.extents())
            pieces_.push_back(
                {inode, file_block, extent, compress, divide_up(inode->attributes.size_bytes, kBlockBytes)});
        compresses_ = compresses_ || compress;
    }
    prepare();
}

// What was begun for a flush that failed.
FlushStream::~FlushStream()
{
    files_.frame_workers.finish();
}

bool FlushStream::take_inline_room(const Frame& frame)
{
    const uint64_t bytes = kInlineItemBytes + frame.stored_bytes;
    if (!frame.fits_inline() || bytes > inline_bytes_)
        return false;
    inline_bytes_ -= bytes;
    return true;
}

bool FlushStream::next_window(Generation generation)
{
    files_.frame_workers.finish();
    let_go();
    now_ = std::exchange(later_, {});
    part_ = slice_ = 0;
    block_ = 0;
    without_blocks_.clear();
    const bool any = !now_.parts.empty();
    uint64_t from = 0, to = 0;
    for (Frame* frame : now_.frames) {
        frame->is_inline = take_inline_room(*frame);
        if (frame->stored_blocks() > 0) {
            from += frame->block_count;
            to += frame->stored_blocks();
        }
        if (frame->is_inline)
            without_blocks_.push_back({frame->inode, frame->inline_extent(generation)});
        else if (frame->zeros)
            without_blocks_.push_back({frame->inode,
                                       {.file_block = frame->first_block,
                                        .block_count = frame->block_count,
                                        .kind = ExtentKind::kReserved}});
        else
            continue;
        now_.file_blocks -= frame->block_count;
    }
    std::erase_if(now_.parts, [](const Part& part) {
        return part.frame != nullptr && (part.frame->zeros || part.frame->is_inline);
    });
    stored_blocks_ = now_.file_blocks - from + to;
    prepare();
    return any;
}

void FlushStream::prepare()
{
    const uint64_t most = compresses_ ? kFlushWindowBlocks : UINT64_MAX;
    while (next_piece_ < pieces_.size() && later_.file_blocks < most)
        add_chunk(later_);
    files_.frame_workers.start(later_.frames, choice_);
}

// Blocks that follow each other in a file, up to a multiple of kFrameBlocksMax there; where nothing is
// compressed, a piece.
void FlushStream::add_chunk(Window& window)
{
    const size_t first_slice = window.slices.size();
    const Piece& first = pieces_[next_piece_];
    const uint64_t begin = first.file_block + next_block_;
    const uint64_t end = first.compress ? (begin / kFrameBlocksMax + 1) * kFrameBlocksMax
                                        : first.file_block + first.extent.block_count;
    uint64_t block = begin;
    while (block < end && next_piece_ < pieces_.size()) {
        const Piece& piece = pieces_[next_piece_];
        if (piece.inode.get() != first.inode.get() || piece.file_block + next_block_ != block)
            break;
        const auto count =
            static_cast<uint32_t>(std::min<uint64_t>(end - block, piece.extent.block_count - next_block_));
        window.slices.push_back({&piece, next_block_, count});
        block += count;
        next_block_ += count;
        if (next_block_ == piece.extent.block_count) {
            ++next_piece_;
            next_block_ = 0;
        }
    }
    window.file_blocks += block - begin;
    Part& part = window.parts.emplace_back();
    part.first_slice = first_slice;
    part.slice_count = window.slices.size() - first_slice;
    const bool whole_file = begin == 0 && block >= first.file_end;
    if (first.compress && (block - begin > 1 || (whole_file && inline_bytes_ > 0))) {
        add_frame(window, part);
        part.frame->whole_file = whole_file;
    }
}

void FlushStream::add_frame(Window& window, Part& part)
{
    part.frame = std::make_unique<Frame>();
    const auto slices = std::span(window.slices).subspan(part.first_slice, part.slice_count);
    Frame& frame = *part.frame;
    frame.inode = slices.front().piece->inode.get();
    frame.first_block = slices.front().piece->file_block + slices.front().first;
    for (const Slice& slice : slices) {
        frame.block_count += slice.block_count;
        frame.content.emplace_back(slice.piece->extent.block(slice.first),
                                   size_t{slice.block_count} * kBlockBytes);
    }
    window.frames.push_back(&frame);
}

SourceBlock FlushStream::next()
{
    const Part& part = now_.parts[part_];
    SourceBlock block;
    if (part.compressed()) {
        Frame& frame = *part.frame;
        block = {frame.stored.data() + size_t{block_} * kBlockBytes, frame.inode, 0, &frame, block_};
        if (++block_ == frame.stored_blocks()) {
            ++part_;
            block_ = 0;
        }
        return block;
    }
    const Slice& slice = now_.slices[part.first_slice + slice_];
    block.memory = slice.piece->extent.block(slice.first + block_);
    block.inode = slice.piece->inode.get();
    block.file_block = slice.piece->file_block + slice.first + block_;
    if (++block_ == slice.block_count) {
        block_ = 0;
        if (++slice_ == part.slice_count) {
            slice_ = 0;
            ++part_;
        }
    }
    return block;
}

void FlushStream::let_go()
{
    const Slice* next = nullptr;
    if (part_ < now_.parts.size())
        next = &now_.slices[now_.parts[part_].first_slice + slice_];
    else if (!later_.slices.empty())
        next = &later_.slices.front();
    const size_t begun = next != nullptr ? static_cast<size_t>(next->piece - pieces_.data()) : pieces_.size();
    for (; done_pieces_ < begun; ++done_pieces_)
        pieces_[done_pieces_].extent = {};
}

}  // namespace cowraid
