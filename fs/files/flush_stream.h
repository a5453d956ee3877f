// SPDX-License-Identifier: MIT
// What a flush writes, in the order in which it gets places: blocks of files, and frames of those that are
// compressed. Private to flush.cc.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "fs/files/flush_parts.h"
#include "fs/volume/node_bound.h"

namespace cowraid {

// A run of dirty blocks of one file. Its memory does not change while it is being flushed.
struct Piece {
    Ref<Inode> inode;
    uint64_t file_block;
    DirtyExtent extent;
    bool compress;
    uint64_t file_end;  // in blocks, as its size is now
};

// Cut into windows, because frames are copies: while one is written the next one is compressed. Without
// compression there is one window.
class FlushStream final : public BlockSource {
public:
    // `inline_bytes`: of items, that frames of small files may take in nodes.
    FlushStream(Files& files, std::span<const Ref<Inode>> inodes, uint64_t inline_bytes);
    ~FlushStream() override;

    // The next window, for the commit `generation`. False: there is none. All blocks of the one before have
    // been handed out and written.
    bool next_window(Generation generation);
    // Extents of the window that take no blocks: holes and inline frames. They come before the others.
    [[nodiscard]] std::span<const MappedRun> without_blocks() const { return without_blocks_; }
    // Blocks of the window that are handed out; blocks of files that they stand for.
    [[nodiscard]] uint64_t stored_blocks() const { return stored_blocks_; }
    [[nodiscard]] uint64_t file_blocks() const { return now_.file_blocks; }
    [[nodiscard]] bool has_frames() const { return stored_blocks_ < now_.file_blocks; }
    [[nodiscard]] bool has_inline_frames() const
    {
        return std::any_of(without_blocks_.begin(), without_blocks_.end(),
                           [](const MappedRun& run) { return run.extent.is_inline(); });
    }
    SourceBlock next() override;
    // Lets go of the memory before the next block.
    void let_go() override;

private:
    // Blocks [first, first + block_count) of a piece.
    struct Slice {
        const Piece* piece;
        uint32_t first, block_count;
    };
    // Slices that follow each other in a file. With a frame that has stored blocks it is stored so.
    struct Part {
        size_t first_slice = 0, slice_count = 0;
        std::unique_ptr<Frame> frame;

        [[nodiscard]] bool compressed() const { return frame != nullptr && frame->stored_blocks() > 0; }
    };
    struct Window {
        std::vector<Slice> slices;
        std::vector<Part> parts;
        std::vector<Frame*> frames;
        uint64_t file_blocks = 0;
    };
    // Fills the next window and sets its compression in motion.
    void prepare();
    void add_chunk(Window& window);
    static void add_frame(Window& window, Part& part);
    bool take_inline_room(const Frame& frame);

    Files& files_;
    const CompressionChoice choice_;
    std::vector<Piece> pieces_;
    bool compresses_ = false;  // any of them
    size_t done_pieces_ = 0;  // written; their memory is let go
    size_t next_piece_ = 0;  // to be cut, and its first block that was not
    uint32_t next_block_ = 0;
    Window now_, later_;
    std::vector<MappedRun> without_blocks_;
    uint64_t inline_bytes_;  // left
    uint64_t stored_blocks_ = 0;
    size_t part_ = 0, slice_ = 0;  // of the next block in now_
    uint32_t block_ = 0;
};

}  // namespace cowraid
