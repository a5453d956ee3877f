// SPDX-License-Identifier: MIT
// The mapping from file blocks to volume addresses, as extent items.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "format/extent_codec.h"
#include "fs/files/files.h"
#include "fs/files/inode.h"

namespace cowraid {

// An operation frees no more blocks of files, but the rest of an extent: those that were moved have entries
// in the remap tree, which go with them.
inline constexpr uint64_t kFreedBlocksMax = 64 * kMiB / kBlockBytes;

// Every extent that overlaps [first_block, first_block + block_count), whole (not clipped), in file order.
// kCorrupt when extents overlap each other. Several keys are read one after another: a caller without the
// inode's mutex compares Inode::extent_version before and after. Of more than `most` the first ones.
Status find_extents(const ItemStore& store, const View& view, InodeNumber inode, uint64_t first_block,
                    uint64_t block_count, std::vector<FileExtent>& out, size_t most = SIZE_MAX);

// The first extent that ends behind `first_block`, whole. kNotFound: there is none.
Status first_extent(const ItemStore& store, const View& view, InodeNumber inode, uint64_t first_block,
                    FileExtent& out);

// What unmapping took away.
struct Unmapped {
    uint64_t data_blocks = 0;  // that the file counts; those of a frame go with its last part
    uint64_t reserved_blocks = 0;
};

// Frames of which a part was seen, while extents are looked at in the order of their files.
class FramesSeen {
public:
    // False: another part of its frame was seen before.
    bool add(const FileExtent& part);

private:
    std::vector<FileExtent> parts_;  // one of each frame that may still have others
};

// Reservations of fallocate that are gone: from the volume's count and from the ledger. Returns how many
// the count held, which is fewer only when the volume counts less than its files (damage).
uint64_t return_reserved(Files& files, uint64_t blocks);

// Changes extent items on behalf of `transaction`, as seen through `view` (whose newest layer is that
// transaction). Requires inode.mutex.
class ExtentEditor {
public:
    ExtentEditor(Files& files, Transaction& transaction, View view, Inode& inode);
    ~ExtentEditor();
    ExtentEditor(const ExtentEditor&) = delete;
    ExtentEditor& operator=(const ExtentEditor&) = delete;

    // Removes the mapping of a range; trims and splits what overlaps; frees the blocks. `removed` grows by
    // what went. Where something cannot be read nothing has changed; an error after that means that the trees
    // contradict each other, and `removed` has what went before it.
    Status unmap(uint64_t first_block, uint64_t block_count, Unmapped& removed);
    // Maps a range (unmapped before) and joins it with the extent before it when both are contiguous.
    Status map(const FileExtent& extent);

private:
    void put(const FileExtent& extent);
    // Whether some part of `extent`'s frame stays when [first_block, end) goes.
    Result<bool> frame_stays(const FileExtent& extent, uint64_t first_block, uint64_t end) const;
    // What nothing refers to when [first_block, end) of `extent` goes: appends where its blocks are. A frame
    // is only freed when none of the `later` extents there has it, too. False: nothing is.
    Result<bool> find_freed(const FileExtent& extent, std::span<const FileExtent> later, uint64_t first_block,
                            uint64_t end, std::vector<RemappedRun>& places) const;

    Files& files_;
    Transaction& transaction_;
    View view_;
    Inode& inode_;
};

}  // namespace cowraid
