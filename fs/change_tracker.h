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

    // Whether file data of the open transaction is tracked. Changes while the gate is held exclusively.
    [[nodiscard]] bool tracking() const { return tracking_.load(std::memory_order_relaxed); }
    void set_tracking(bool on) { tracking_.store(on, std::memory_order_relaxed); }
    // Blocks of the inode became dirty, changed, or are dirty no more. Requires inode.mutex and the gate.
    void note_blocks(Inode& inode, uint64_t first_block, uint64_t block_count);
    // Inodes with blocks noted (Inode::unlogged) since the last call. Requires the gate held exclusively.
    std::vector<Ref<Inode>> take_inodes();

private:
    std::atomic<uint64_t> newest_{0};
    std::atomic<bool> tracking_{false};
    Mutex mutex_{LockRank::kLeaf};
    std::vector<Ref<Inode>> inodes_ CW_GUARDED_BY(mutex_);
};

}  // namespace cowraid
