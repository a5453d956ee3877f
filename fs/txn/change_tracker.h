// SPDX-License-Identifier: MIT
// Numbers changes, and knows which file data the fsync log does not have yet.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/mutex.h"
#include "base/ref.h"

namespace cowraid {

struct Inode;

class ChangeTracker {
public:
    ChangeTracker();
    ~ChangeTracker();

    // Number of a new change, from 1. The operation gate is held shared until the change is complete, so that
    // who holds it exclusively finds every change up to newest() complete.
    uint64_t next() { return newest_.fetch_add(1) + 1; }
    [[nodiscard]] uint64_t newest() const { return newest_.load(); }
    [[nodiscard]] const std::atomic<uint64_t>& counter() const { return newest_; }

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
    std::atomic<uint64_t> newest_{0};
    std::atomic<bool> tracking_{false};
    std::atomic<int64_t> ranges_{0};  // of all inodes' unlogged blocks
    Mutex mutex_{LockRank::kLeaf};
    std::vector<Ref<Inode>> inodes_ CW_GUARDED_BY(mutex_);
};

}  // namespace cowraid
