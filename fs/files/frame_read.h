// SPDX-License-Identifier: MIT
// Reading what files have stored: blocks as they are, and compressed frames.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "format/extent_codec.h"
#include "fs/txn/store.h"

namespace cowraid {

// Blocks side by side and the memory they are read into.
struct StoredPiece {
    VolumeAddress address;
    uint64_t block_count;
    std::byte* memory;
};

// From the addresses that extents name to those where the blocks are.
Status find_physical(Store& store, const View& view, std::vector<StoredPiece>& pieces);

// Reads them, verified and healed; `out` has what became of each. What is lost is put on the list of damage.
// `lease`: as Array::read() takes it. Returns the first failure.
Status read_pieces(Store& store, const View& view, const std::vector<StoredPiece>& stored,
                   AlignedBuffer* lease, std::vector<ReadPiece>& out);

// Blocks of a request that could not be read, by their place in it.
struct LostBlocks {
    uint64_t count = 0, first = 0, last = 0;

    void add(uint64_t first_lost, uint64_t last_lost, uint64_t block_count)
    {
        first = count == 0 ? first_lost : std::min(first, first_lost);
        last = std::max(last, last_lost);
        count += block_count;
    }
    void add(uint64_t begin, const ReadPiece& piece)
    {
        add(begin + piece.first_bad, begin + piece.last_bad, piece.bad_blocks);
    }
};

// What `part` of a compressed extent has, part.block_count blocks, out of its frame's stored blocks.
// kCorrupt: they are no frame, or one that does not hold that part.
Status decompress_part(const FileExtent& part, std::span<const std::byte> stored, std::byte* memory);

// Parts of frames that a request wants.
class FrameReads {
public:
    // A compressed extent, or a part of one, and where its content goes. In the order of the file.
    void add(const FileExtent& part, std::byte* memory);
    // Of all frames.
    [[nodiscard]] size_t stored_bytes() const { return stored_bytes_; }
    // Where their blocks are.
    Status find(Store& store, const View& view);
    // Reads the frames and decompresses the parts into their memory. `request`: where the request begins.
    // kCorrupt: a frame is none, though its blocks have the checksums that they should have.
    Status read(Store& store, const View& view, const std::byte* request, LostBlocks& lost);

private:
    struct Part {
        FileExtent extent;
        std::byte* memory;
        size_t stored_offset;  // of its frame in stored_
    };
    std::vector<Part> parts_;
    AlignedBuffer stored_;
    size_t stored_bytes_ = 0;
    std::vector<StoredPiece> pieces_;
};

}  // namespace cowraid
