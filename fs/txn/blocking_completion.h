// SPDX-License-Identifier: MIT
#pragma once

#include "base/mutex.h"
#include "fs/txn/completion.h"

namespace cowraid {

// A completion that a thread waits for.
class BlockingCompletion : public Completion {
public:
    void done(Status status) override
    {
        MutexLock lock(mutex_);
        status_ = status;
        finished_ = true;
        condition_.notify_one();
    }
    Status wait()
    {
        MutexLock lock(mutex_);
        while (!finished_)
            condition_.wait(mutex_);
        return status_;
    }

private:
    Mutex mutex_{LockRank::kLeaf};
    CondVar condition_;
    bool finished_ CW_GUARDED_BY(mutex_) = false;
    Status status_ CW_GUARDED_BY(mutex_);
};

}  // namespace cowraid
