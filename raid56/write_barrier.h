// SPDX-License-Identifier: MIT
// Keeps writes in place and flushes of all members apart: what a flush is said to cover was on its way to the
// members before it began.
#pragma once

#include "base/mutex.h"

namespace cowraid {

// Any number of writers, or one that flushes; who flushes goes first. Not recursive. Thread-safe.
class WriteBarrier {
public:
    void enter()
    {
        MutexLock lock(mutex_);
        while (closing_ > 0)
            changed_.wait(mutex_);
        ++inside_;
    }
    void leave()
    {
        MutexLock lock(mutex_);
        if (--inside_ == 0)
            changed_.notify_all();
    }
    // Returns when nobody is inside, and keeps everybody out until open().
    void close()
    {
        MutexLock lock(mutex_);
        ++closing_;
        while (inside_ > 0 || closed_)
            changed_.wait(mutex_);
        closed_ = true;
    }
    void open()
    {
        MutexLock lock(mutex_);
        closed_ = false;
        --closing_;
        changed_.notify_all();
    }

private:
    Mutex mutex_{LockRank::kLeaf};
    CondVar changed_;
    uint32_t inside_ CW_GUARDED_BY(mutex_) = 0;
    uint32_t closing_ CW_GUARDED_BY(mutex_) = 0;  // who flushes or waits to
    bool closed_ CW_GUARDED_BY(mutex_) = false;
};

}  // namespace cowraid
