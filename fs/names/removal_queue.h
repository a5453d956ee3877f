// SPDX-License-Identifier: MIT
#pragma once

#include <deque>
#include <set>

#include "base/mutex.h"
#include "base/status.h"
#include "base/units.h"

namespace cowraid {

// Unlinked inodes that wait to be deleted. Thread-safe.
class RemovalQueue {
public:
    void push(InodeNumber inode);
    // Waits for work; false when stop() was called.
    bool pop(InodeNumber& inode);
    bool try_pop(InodeNumber& inode);
    // Puts aside what pop() gave and could not be deleted now.
    void set_aside(InodeNumber inode);
    // Pushes again what was set aside. kNotFound: there is none.
    Status retry();
    [[nodiscard]] bool empty();
    // Nothing is queued, set aside, or being deleted.
    [[nodiscard]] bool all_done();
    // Waits until pop() was called again after it gave the last of what was pushed before, or for stop().
    void wait_done();
    // Whoever starts has pushed every unlinked inode anew.
    void start();
    void stop();
    // Whether stop() was called last: who deletes a file goes no further than a piece.
    [[nodiscard]] bool stopped();

private:
    Mutex mutex_{LockRank::kLeaf};
    CondVar condition_, done_changed_;
    std::deque<InodeNumber> inodes_ CW_GUARDED_BY(mutex_);
    // Each once, however often it was pushed: a truncation that fails may be tried again and again.
    std::set<InodeNumber> set_aside_ CW_GUARDED_BY(mutex_);
    uint64_t pushed_ CW_GUARDED_BY(mutex_) = 0;
    uint64_t done_ CW_GUARDED_BY(mutex_) = 0;
    bool stopped_ CW_GUARDED_BY(mutex_) = false;
};

}  // namespace cowraid
