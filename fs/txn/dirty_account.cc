// SPDX-License-Identifier: MIT
#include "fs/txn/dirty_account.h"

#include "base/assert.h"

namespace cowraid {

DirtyAccount::DirtyAccount(uint64_t bytes_max) : blocks_max_(bytes_max / kBlockBytes) { }

void DirtyAccount::add_blocks(uint64_t blocks, int64_t runs)
{
    MutexLock lock(mutex_);
    blocks_ += blocks;
    runs_ += runs;
}

void DirtyAccount::remove_blocks(uint64_t blocks, int64_t runs)
{
    MutexLock lock(mutex_);
    CW_ASSERT(blocks <= blocks_);
    blocks_ -= blocks;
    runs_ += runs;
    CW_ASSERT(runs_ >= 0 && (blocks_ > 0 || runs_ == 0));
    if (blocks_ < blocks_max_)
        room_.notify_all();
}

DirtyAccount::Amount DirtyAccount::amount() const
{
    MutexLock lock(mutex_);
    return {blocks_, static_cast<uint64_t>(runs_)};
}

bool DirtyAccount::wants_flush() const
{
    MutexLock lock(mutex_);
    return blocks_ >= blocks_max_ / 2;
}

bool DirtyAccount::full() const
{
    MutexLock lock(mutex_);
    return blocks_ >= blocks_max_;
}

bool DirtyAccount::wait_for_room()
{
    MutexLock lock(mutex_);
    while (blocks_ >= blocks_max_ && !stopped_)
        room_.wait(mutex_);
    return !stopped_;
}

void DirtyAccount::stop()
{
    MutexLock lock(mutex_);
    stopped_ = true;
    room_.notify_all();
}

}  // namespace cowraid
