// SPDX-License-Identifier: MIT
// The threads of a mounted filesystem: one commits, one deletes unlinked inodes.
#pragma once

#include <pthread.h>

#include <deque>

#include "base/mutex.h"
#include "base/units.h"

namespace cowraid {

struct FilesystemCore;

class RemovalQueue {
public:
    void push(InodeNumber inode);
    // Waits for work; false when stop() was called.
    bool pop(InodeNumber& inode);
    bool try_pop(InodeNumber& inode);
    [[nodiscard]] bool empty();
    // Waits until pop() was called again after it gave the last of what was pushed before, or for stop().
    void wait_done();
    void start();
    void stop();

private:
    Mutex mutex_{LockRank::kLeaf};
    CondVar condition_, done_changed_;
    std::deque<InodeNumber> inodes_ CW_GUARDED_BY(mutex_);
    uint64_t pushed_ CW_GUARDED_BY(mutex_) = 0;
    uint64_t done_ CW_GUARDED_BY(mutex_) = 0;
    bool stopped_ CW_GUARDED_BY(mutex_) = false;
};

class Background {
public:
    explicit Background(FilesystemCore& core) : core_(core) { }
    ~Background() { stop(); }
    Background(const Background&) = delete;
    Background& operator=(const Background&) = delete;

    void start();
    // Ends both threads; what is queued stays for the next mount. Idempotent.
    void stop();

private:
    static void* commit_main(void* self);
    static void* removal_main(void* self);

    FilesystemCore& core_;
    pthread_t commit_thread_{};
    pthread_t removal_thread_{};
    bool running_ = false;
};

}  // namespace cowraid
