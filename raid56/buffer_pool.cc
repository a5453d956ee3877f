// SPDX-License-Identifier: MIT
#include "raid56/buffer_pool.h"

#include <algorithm>

#include "base/units.h"

namespace cowraid {

AlignedBuffer BufferPool::take(size_t bytes)
{
    {
        MutexLock guard(mutex_);
        // The smallest that is large enough.
        auto best = free_.end();
        for (auto at = free_.begin(); at != free_.end(); ++at)
            if (at->size() >= bytes && (best == free_.end() || at->size() < best->size()))
                best = at;
        if (best != free_.end()) {
            AlignedBuffer buffer = std::move(*best);
            free_.erase(best);
            free_bytes_ -= buffer.size();
            return buffer;
        }
    }
    return AlignedBuffer(round_up(std::max<size_t>(bytes, 1), 64 * kKiB));
}

void BufferPool::give_back(AlignedBuffer buffer)
{
    MutexLock guard(mutex_);
    if (buffer.size() == 0 || free_bytes_ + buffer.size() > kept_max_)
        return;
    free_bytes_ += buffer.size();
    free_.push_back(std::move(buffer));
}

void BufferPool::keep_at_most(size_t bytes)
{
    MutexLock guard(mutex_);
    kept_max_ = bytes;
}

}  // namespace cowraid
