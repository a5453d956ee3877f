// SPDX-License-Identifier: MIT
// Compressed frames on their way to members: chunks of dirty data of up to kFrameBlocksMax blocks, each
// compressed by itself. What compression does not make smaller by a block is stored as it is, and zeros
// become a hole. That of a small file may be kept in its item, and takes no blocks.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "base/zstd_frame.h"
#include "format/extent_codec.h"
#include "fs/files/inode.h"
#include "fs/volume/mount_options.h"
#include "raid56/array.h"

namespace cowraid {

// Whether what is written to a file with these flags is compressed.
inline bool is_to_compress(CompressionChoice choice, uint64_t flags)
{
    return (choice.on && (flags & kInodeNoCompress) == 0) || (flags & kInodeCompress) != 0;
}

struct Frame {
    Inode* inode = nullptr;
    uint64_t first_block = 0;  // of the file
    uint32_t block_count = 0;
    std::vector<std::span<const std::byte>> content;  // as dirty data has it, in order

    bool whole_file = false;  // all of it: may be kept in its item
    bool zeros = false;  // nothing but them: nothing is stored
    bool is_inline = false;  // kept in its item; decided when it is compressed
    size_t stored_bytes = 0;  // of the zstd frame; 0: it did not become small enough for anything
    AlignedBuffer stored;  // whole blocks, zeros behind the zstd frame
    std::array<VolumeAddress, kFrameBlocksMax> places;  // of its stored blocks
    uint32_t placed = 0;  // so many of them are known

    // 0: it is not stored as a frame in blocks.
    [[nodiscard]] uint32_t stored_blocks() const
    {
        const auto blocks = static_cast<uint32_t>(stored.size() / kBlockBytes);
        return is_inline || blocks == block_count ? 0 : blocks;
    }
    [[nodiscard]] bool fits_inline() const
    {
        return whole_file && stored_bytes > 0 && stored_bytes <= kInlineBytesMax;
    }
    // Of one that is inline.
    [[nodiscard]] FileExtent inline_extent(Generation generation) const;
    // Requires that all places are known. `array` tells where block groups end.
    [[nodiscard]] FileExtent extent(const Array& array, Generation generation) const;
};

// Whether bytes of `content`, a sample of them, are so evenly spread that compression gains nothing.
bool looks_incompressible(const Frame& frame);

// Compresses frames. One batch at a time: start(), then finish(). Called by one thread.
class FrameWorkers {
public:
    // `thread_count`: besides the caller of finish(). They are started when there is something to do; without
    // any the caller does it all.
    explicit FrameWorkers(size_t thread_count) : thread_count_(thread_count) { }
    ~FrameWorkers();
    FrameWorkers(const FrameWorkers&) = delete;
    FrameWorkers& operator=(const FrameWorkers&) = delete;

    // The frames stay where they are until finish(), and so does what they point to.
    void start(std::span<Frame* const> frames, CompressionChoice choice);
    // Takes part until every frame is done.
    void finish();

private:
    struct Scratch {
        ZstdCompressor compressor;
        AlignedBuffer content{size_t{kFrameBlocksMax} * kBlockBytes};
        AlignedBuffer stored{size_t{kFrameBlocksMax - 1} * kBlockBytes};
    };
    static void* thread_main(void* self);
    void work();
    // The next frame, or null when all are taken.
    Frame* take(CompressionChoice& choice) CW_REQUIRES(mutex_);
    Frame* try_take(CompressionChoice& choice);
    // Null: the object is going away.
    Frame* wait_for_frame(CompressionChoice& choice);
    void end_frame();
    static void compress(Frame& frame, CompressionChoice choice, Scratch& scratch);

    const size_t thread_count_;
    std::unique_ptr<Scratch> own_;  // of the caller of finish()
    std::list<Thread> threads_;
    bool no_more_threads_ = false;  // the system gave none
    Mutex mutex_{LockRank::kLeaf};
    CondVar wake_, done_;
    std::span<Frame* const> frames_ CW_GUARDED_BY(mutex_);
    CompressionChoice choice_ CW_GUARDED_BY(mutex_);
    size_t next_ CW_GUARDED_BY(mutex_) = 0;
    size_t left_ CW_GUARDED_BY(mutex_) = 0;  // not compressed yet
    bool stopped_ CW_GUARDED_BY(mutex_) = false;
};

}  // namespace cowraid
