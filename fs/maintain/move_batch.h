// SPDX-License-Identifier: MIT
// Blocks of a group that is being emptied, as they are read: what they are called, and what they hold.
#pragma once

#include <vector>

#include "base/buffer.h"
#include "fs/txn/store.h"

namespace cowraid {

// Blocks that are neighbours by each of their addresses.
struct MovedRun {
    VolumeAddress from;
    VolumeAddress logical;  // of files
    VolumeAddress to;  // not valid: no place yet
    uint32_t block_count = 0;
    size_t first = 0;  // number of its first block in the batch
};

// What it says of live blocks stays true until they are freed, or moved: their group takes no new ones.
struct MoveBatch {
    std::vector<BlockRun> runs;  // all live ones in a part of the group
    std::vector<Checksum> checksums;  // of these, block by block
    AlignedBuffer memory;  // and their content; may be longer
    std::vector<MovedRun> moves;  // those of them that can be moved, `to` left out
    uint64_t move_count = 0;  // blocks of them
    uint64_t unmovable = 0;  // blocks that cannot be read, or to which their logical address does not lead
};

// The next `block_count` or fewer live blocks from `from` on, all of one group, of which all are committed;
// none: `out.runs` is empty. Fewer where they lie apart, so that what they cost is bounded. An error means
// that a tree, or the state of the group, could not be read. Thread-safe.
Status read_move_batch(Store& store, const View& view, VolumeAddress from, uint64_t block_count,
                       MoveBatch& out);

}  // namespace cowraid
