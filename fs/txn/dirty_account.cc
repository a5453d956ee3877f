// SPDX-License-Identifier: MIT
#include "fs/txn/dirty_account.h"

#include <algorithm>

#include "base/assert.h"

namespace cowraid {

namespace {

constexpr uint64_t kWriteBlocks = kMiB / kBlockBytes;  // of the largest write
constexpr uint64_t kWriters = 64;

}  // namespace

DirtyAccount::DirtyAccount(uint64_t bytes_max)
    : blocks_max_(bytes_max / kBlockBytes),
      held_from_blocks_(blocks_max_ - std::min(blocks_max_ / 2, kWriters * kWriteBlocks))
{
}

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

bool DirtyAccount::holds_answers() const
{
    MutexLock lock(mutex_);
    return blocks_ >= held_from_blocks_ && !stopped_;
}

void DirtyAccount::answer_when_room(Completion* completion)
{
    {
        MutexLock lock(mutex_);
        if (blocks_ >= held_from_blocks_ && !stopped_) {
            waiting_.push_back(completion);
            return;
        }
    }
    completion->done({});
}

bool DirtyAccount::answer_waiting()
{
    std::deque<Completion*> answered;
    bool more;
    {
        MutexLock lock(mutex_);
        for (uint64_t taken = blocks_; taken < held_from_blocks_ && !waiting_.empty();
             taken += kWriteBlocks) {
            answered.push_back(waiting_.front());
            waiting_.pop_front();
        }
        more = !waiting_.empty();
    }
    for (Completion* completion : answered)
        completion->done({});
    return more;
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
    std::deque<Completion*> answered;
    {
        MutexLock lock(mutex_);
        stopped_ = true;
        room_.notify_all();
        answered.swap(waiting_);
    }
    for (Completion* completion : answered)
        completion->done({});
}

}  // namespace cowraid
