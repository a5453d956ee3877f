// SPDX-License-Identifier: MIT
// How much file data waits in memory.
#pragma once

#include <cstdint>
#include <deque>

#include "base/mutex.h"
#include "base/units.h"
#include "fs/txn/completion.h"

namespace cowraid {

// Writers are slowed down in two steps. Above a first bound a write is applied and its answer waits for room,
// which takes no thread. Only above `bytes_max` does a write wait before it is applied. Between the two is
// room for one write of the largest size by each of 64 writers, or half of `bytes_max` where that is less.
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
    // True while writers should ask for a flush: at half of `bytes_max`.
    [[nodiscard]] bool wants_flush() const;
    // At or above the first bound: the answer to a write should wait.
    [[nodiscard]] bool holds_answers() const;
    // Answers at once, with success, or from answer_waiting() or stop(). The caller asks for a flush
    // afterwards. No locks held.
    void answer_when_room(Completion* completion);
    // Answers as many of those that wait, oldest first, as there is room for their next write. True: others
    // still wait. No locks held.
    bool answer_waiting();
    // At or above `bytes_max`: writers must wait.
    [[nodiscard]] bool full() const;
    // Waits until less than that is dirty. Called without locks. False when `stopped` was called.
    bool wait_for_room();
    // Nothing will be flushed from now on: nobody waits.
    void stop();

private:
    const uint64_t blocks_max_, held_from_blocks_;
    mutable Mutex mutex_{LockRank::kDirty};
    CondVar room_;
    std::deque<Completion*> waiting_ CW_GUARDED_BY(mutex_);
    uint64_t blocks_ CW_GUARDED_BY(mutex_) = 0;
    int64_t runs_ CW_GUARDED_BY(mutex_) = 0;
    bool stopped_ CW_GUARDED_BY(mutex_) = false;
};

}  // namespace cowraid
