// SPDX-License-Identifier: MIT
#include "fs/background.h"

#include <sys/prctl.h>

#include "base/assert.h"
#include "base/large_memory.h"
#include "fs/commit.h"
#include "fs/removal.h"

namespace cowraid {

namespace {

// Memory reclaim must not wait for writes that this very thread carries out.
void prepare_thread(const char* name)
{
    prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);  // refused without privilege: then there is no such writeback
    pthread_setname_np(pthread_self(), name);
}

}  // namespace

void RemovalQueue::push(InodeNumber inode)
{
    MutexLock lock(mutex_);
    inodes_.push_back(inode);
    condition_.notify_one();
}

bool RemovalQueue::pop(InodeNumber& inode)
{
    MutexLock lock(mutex_);
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

void RemovalQueue::start()
{
    MutexLock lock(mutex_);
    stopped_ = false;
}

void RemovalQueue::stop()
{
    MutexLock lock(mutex_);
    stopped_ = true;
    condition_.notify_all();
}

void* Background::commit_main(void* self)
{
    FilesystemCore& core = static_cast<Background*>(self)->core_;
    prepare_thread("cowraid-commit");
    while (true) {
        const CommitQueue::Work work = core.commits.sleep(uint64_t{core.options.commit_seconds} * 1000);
        // Errors have stopped the filesystem and are logged; waiters got them.
        if (work.commit)
            commit_now(core).ignore();
        else if (work.flush)
            flush_now(core).ignore();
        if (work.stop)
            return nullptr;
        if (work.commit)
            large_trim();
    }
}

void* Background::removal_main(void* self)
{
    FilesystemCore& core = static_cast<Background*>(self)->core_;
    prepare_thread("cowraid-remove");
    InodeNumber inode;
    while (core.removals.pop(inode))
        remove_inode(core, inode).ignore();  // its orphan item stays: the next mount tries again
    return nullptr;
}

void Background::start()
{
    core_.removals.start();
    CW_ASSERT(pthread_create(&commit_thread_, nullptr, commit_main, this) == 0);
    CW_ASSERT(pthread_create(&removal_thread_, nullptr, removal_main, this) == 0);
    running_ = true;
}

void Background::stop()
{
    if (!running_)
        return;
    running_ = false;
    core_.removals.stop();
    pthread_join(removal_thread_, nullptr);
    core_.commits.request_stop();
    pthread_join(commit_thread_, nullptr);
}

}  // namespace cowraid
