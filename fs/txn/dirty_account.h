// SPDX-License-Identifier: MIT
// How much file data waits in memory.
#pragma once

#include <cstdint>

#include "base/mutex.h"
#include "base/units.h"

namespace cowraid {

class DirtyAccount {
public:
    explicit DirtyAccount(uint64_t bytes_max);

    // Blocks became dirty, or fewer are (flushed or dropped, which wakes writers); `runs`: by how many the
    // extents of dirty and flushing maps changed. Never waits.
    void add_blocks(uint64_t blocks, int64_t runs);
    void remove_blocks(uint64_t blocks, int64_t runs);
    struct Amount {
        uint64_t blocks, runs;
    };
    [[nodiscard]] Amount amount() const;
    [[nodiscard]] uint64_t blocks() const { return amount().blocks; }
    // True while writers should ask for a flush: above half of the bound.
    [[nodiscard]] bool wants_flush() const;
    // At or above the bound: writers must wait.
    [[nodiscard]] bool full() const;
    // Waits until less than the bound is dirty. Called without locks. False when `stopped` was called.
    bool wait_for_room();
    void stop();

private:
    const uint64_t blocks_max_;
    mutable Mutex mutex_{LockRank::kDirty};
    CondVar room_;
    uint64_t blocks_ CW_GUARDED_BY(mutex_) = 0;
    int64_t runs_ CW_GUARDED_BY(mutex_) = 0;
    bool stopped_ CW_GUARDED_BY(mutex_) = false;
};

}  // namespace cowraid
