// SPDX-License-Identifier: MIT
#include "fs/txn/commit_queue.h"

#include <algorithm>

#include "fs/txn/blocking_completion.h"

namespace cowraid {

void CommitQueue::wait_async(TransactionId id, Completion* completion)
{
    Status answer;
    {
        MutexLock lock(mutex_);
        if (failure_.ok() && suspended_.ok() && finished_ < id) {
            waiters_.push_back({id, completion});
            if (begun_ < id) {
                requested_.commit = true;
                wake_.notify_all();
            }
            return;
        }
        if (finished_ < id)
            answer = failure_.ok() ? suspended_ : failure_;
    }
    completion->done(answer);
}

Status CommitQueue::wait(TransactionId id)
{
    BlockingCompletion blocking;
    wait_async(id, &blocking);
    return blocking.wait();
}

void CommitQueue::request_commit()
{
    MutexLock lock(mutex_);
    requested_.commit = true;
    wake_.notify_all();
}

void CommitQueue::request_flush()
{
    MutexLock lock(mutex_);
    requested_.flush = true;
    wake_.notify_all();
}

void CommitQueue::request_stop()
{
    MutexLock lock(mutex_);
    requested_.stop = true;
    wake_.notify_all();
}

CommitQueue::Work CommitQueue::sleep(uint64_t milliseconds)
{
    MutexLock lock(mutex_);
    bool in_time = true;
    while (!requested_.any() && in_time)
        in_time = wake_.wait_for(mutex_, milliseconds);
    const Work work = requested_;
    requested_ = Work();
    return work;
}

void CommitQueue::begun(TransactionId id)
{
    MutexLock lock(mutex_);
    begun_ = id;
}

void CommitQueue::answer(TransactionId id, Status status)
{
    std::vector<Waiter> answered;
    {
        MutexLock lock(mutex_);
        const auto keep = [&](const Waiter& waiter) {
            return waiter.id > id;
        };
        const auto at = std::stable_partition(waiters_.begin(), waiters_.end(), keep);
        answered.assign(at, waiters_.end());
        waiters_.erase(at, waiters_.end());
    }
    for (const Waiter& waiter : answered)
        waiter.completion->done(status);
}

void CommitQueue::finished(TransactionId id)
{
    {
        MutexLock lock(mutex_);
        finished_ = id;
    }
    answer(id, {});
}

void CommitQueue::failed(Status status)
{
    // Deleting files, which kNoSpace asks for, is of no use to anybody.
    if (status.err() == Err::kNoSpace)
        status = Err::kShutdown;
    {
        MutexLock lock(mutex_);
        failure_ = status;
    }
    answer(TransactionId{UINT64_MAX}, status);
}

void CommitQueue::suspend(Status status)
{
    {
        MutexLock lock(mutex_);
        suspended_ = status;
    }
    answer(TransactionId{UINT64_MAX}, status);
}

void CommitQueue::resume()
{
    MutexLock lock(mutex_);
    suspended_ = {};
    requested_.stop = false;  // of a thread that has ended
}

}  // namespace cowraid
