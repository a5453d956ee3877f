// SPDX-License-Identifier: MIT
#include "fs/files/change_tracker.h"

namespace cowraid {

void ChangeTracker::note_blocks(Inode& inode, uint64_t first_block, uint64_t block_count)
{
    inode.mutex.assert_held();
    if (!tracking())
        return;
    const bool listed = !inode.unlogged.empty();
    const int64_t more = inode.unlogged.add(first_block, block_count);
    if (more != 0 && ranges_.fetch_add(more) + more > kRangesMax)
        set_tracking(false);
    if (listed || inode.unlogged.empty())
        return;
    inodes_.add(Ref<Inode>(&inode));
}

std::vector<Ref<Inode>> ChangeTracker::take_inodes()
{
    ranges_ = 0;
    return inodes_.take();
}

}  // namespace cowraid
