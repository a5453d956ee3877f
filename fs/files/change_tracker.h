// SPDX-License-Identifier: MIT
// Knows which file data the fsync log does not have yet.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "fs/files/inode.h"

namespace cowraid {

class ChangeTracker {
public:
    // More ranges of changed blocks than a record can have content for are not worth to be told apart.
    static constexpr int64_t kRangesMax = 2048;

    // Whether file data of the open transaction is tracked: from set_tracking(), which requires the gate held
    // exclusively, until there are too many ranges.
    [[nodiscard]] bool tracking() const { return tracking_.load(std::memory_order_relaxed); }
    void set_tracking(bool on) { tracking_.store(on, std::memory_order_relaxed); }
    // Blocks of the inode became dirty, changed, or are dirty no more. Requires inode.mutex and the gate.
    void note_blocks(Inode& inode, uint64_t first_block, uint64_t block_count);
    // Inodes with blocks noted (Inode::unlogged) since the last call. Requires the gate held exclusively.
    std::vector<Ref<Inode>> take_inodes();

private:
    std::atomic<bool> tracking_{false};
    std::atomic<int64_t> ranges_{0};  // of all inodes' unlogged blocks
    InodeList inodes_;
};

}  // namespace cowraid
