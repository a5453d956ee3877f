// SPDX-License-Identifier: MIT
#include "fs/names/removal_queue.h"

namespace cowraid {

void RemovalQueue::push(InodeNumber inode)
{
    MutexLock lock(mutex_);
    inodes_.push_back(inode);
    ++pushed_;
    condition_.notify_one();
}

bool RemovalQueue::pop(InodeNumber& inode)
{
    MutexLock lock(mutex_);
    done_ = pushed_ - inodes_.size();
    done_changed_.notify_all();
    while (inodes_.empty() && !stopped_)
        condition_.wait(mutex_);
    if (stopped_)
        return false;
    inode = inodes_.front();
    inodes_.pop_front();
    return true;
}

bool RemovalQueue::try_pop(InodeNumber& inode)
{
    MutexLock lock(mutex_);
    if (inodes_.empty())
        return false;
    inode = inodes_.front();
    inodes_.pop_front();
    return true;
}

void RemovalQueue::set_aside(InodeNumber inode)
{
    MutexLock lock(mutex_);
    set_aside_.insert(inode);
}

Status RemovalQueue::retry()
{
    MutexLock lock(mutex_);
    if (set_aside_.empty())
        return Err::kNotFound;
    inodes_.insert(inodes_.end(), set_aside_.begin(), set_aside_.end());
    pushed_ += set_aside_.size();
    set_aside_.clear();
    condition_.notify_one();
    return {};
}

bool RemovalQueue::empty()
{
    MutexLock lock(mutex_);
    return inodes_.empty();
}

bool RemovalQueue::all_done()
{
    MutexLock lock(mutex_);
    return set_aside_.empty() && done_ == pushed_;
}

void RemovalQueue::wait_done()
{
    MutexLock lock(mutex_);
    const uint64_t last = pushed_;
    while (done_ < last && !stopped_)
        done_changed_.wait(mutex_);
}

void RemovalQueue::start()
{
    MutexLock lock(mutex_);
    stopped_ = false;
    set_aside_.clear();
}

bool RemovalQueue::stopped()
{
    MutexLock lock(mutex_);
    return stopped_;
}

void RemovalQueue::stop()
{
    MutexLock lock(mutex_);
    stopped_ = true;
    condition_.notify_all();
    done_changed_.notify_all();
}

}  // namespace cowraid
