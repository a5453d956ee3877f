// SPDX-License-Identifier: MIT
#include "fs/txn/change_tracker.h"

#include <utility>

#include "fs/files/inode.h"

namespace cowraid {

ChangeTracker::ChangeTracker() = default;

ChangeTracker::~ChangeTracker() = default;

void ChangeTracker::note_blocks(Inode& inode, uint64_t first_block,
                                uint64_t block_count) CW_NO_THREAD_SAFETY_ANALYSIS
{
    if (!tracking())
        return;
    const bool listed = !inode.unlogged.empty();
    const int64_t more = inode.unlogged.add(first_block, block_count);
    if (more != 0 && ranges_.fetch_add(more) + more > kRangesMax)
        set_tracking(false);
    if (listed || inode.unlogged.empty())
        return;
    MutexLock lock(mutex_);
    inodes_.push_back(Ref<Inode>(&inode));
}

std::vector<Ref<Inode>> ChangeTracker::take_inodes()
{
    MutexLock lock(mutex_);
    ranges_ = 0;
    return std::exchange(inodes_, {});
}

}  // namespace cowraid
