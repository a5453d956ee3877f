// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "base/mutex.h"

namespace cowraid {

// Something that happens again and again, and threads that wait for it to happen once more. Take a ticket,
// look at the state, then wait past the ticket: nothing is missed in between.
class Event {
public:
    [[nodiscard]] uint64_t ticket() const
    {
        MutexLock lock(mutex_);
        return count_;
    }
    void announce()
    {
        MutexLock lock(mutex_);
        ++count_;
        condition_.notify_all();
    }
    // Returns when announce() was called after `ticket` was taken.
    void wait_past(uint64_t ticket)
    {
        MutexLock lock(mutex_);
        while (count_ == ticket)
            condition_.wait(mutex_);
    }

private:
    mutable Mutex mutex_{LockRank::kLeaf};
    CondVar condition_;
    uint64_t count_ CW_GUARDED_BY(mutex_) = 0;
};

}  // namespace cowraid
