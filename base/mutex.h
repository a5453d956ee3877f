// SPDX-License-Identifier: MIT
// Locks that know their rank. A thread may only take locks of rising rank (docs/LOCKING.md); debug builds
// abort on a violation, and clang's thread-safety analysis reads the annotations.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "base/lock_rank.h"
#include "base/thread_annotations.h"

namespace cowraid {

// How many locks of this rank the calling thread has taken since it began, for tests that count them. 0 where
// nothing is counted: in builds without debug checks.
uint64_t locks_taken(LockRank rank);

class CW_CAPABILITY("mutex") Mutex {
public:
    explicit Mutex(LockRank rank);
    ~Mutex();
    Mutex(const Mutex&) = delete;
    Mutex& operator=(const Mutex&) = delete;

    void lock() CW_ACQUIRE();
    // For a second lock of the same rank; the caller orders them itself (inodes: by number).
    void lock_nested() CW_ACQUIRE();
    [[nodiscard]] bool try_lock() CW_TRY_ACQUIRE(true);
    void unlock() CW_RELEASE();
    // For a function whose caller took the lock in a way that the analysis cannot follow. Debug builds abort
    // when this thread does not hold it.
    void assert_held() const CW_ASSERT_HELD(this);

private:
    friend class CondVar;
    pthread_mutex_t mutex_;
    LockRank rank_;
#ifdef COWRAID_DEBUG
    void set_holder(const void* holder)
    {
        holder_.store(holder, std::memory_order_relaxed);
    }
    std::atomic<const void*> holder_{nullptr};  // something of the thread that holds it
#else
    void set_holder(const void*) { }
#endif
};

class CW_SCOPED_CAPABILITY MutexLock {
public:
    explicit MutexLock(Mutex& mutex) CW_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
    ~MutexLock() CW_RELEASE() { mutex_.unlock(); }
    MutexLock(const MutexLock&) = delete;
    MutexLock& operator=(const MutexLock&) = delete;

private:
    Mutex& mutex_;
};

class CondVar {
public:
    CondVar();
    ~CondVar();
    CondVar(const CondVar&) = delete;
    CondVar& operator=(const CondVar&) = delete;

    // Releases `mutex`, sleeps, takes it again. Wakes spuriously.
    void wait(Mutex& mutex) CW_REQUIRES(mutex);
    // As wait(), for at most `milliseconds`. False when the time ran out.
    bool wait_for(Mutex& mutex, uint64_t milliseconds) CW_REQUIRES(mutex);
    void notify_one();
    void notify_all();

private:
    pthread_cond_t condition_;
};

// Many readers or one writer.
class CW_CAPABILITY("mutex") RwLock {
public:
    explicit RwLock(LockRank rank);
    ~RwLock();
    RwLock(const RwLock&) = delete;
    RwLock& operator=(const RwLock&) = delete;

    void lock() CW_ACQUIRE();
    void unlock() CW_RELEASE();
    void lock_shared() CW_ACQUIRE_SHARED();
    void unlock_shared() CW_RELEASE_SHARED();

private:
    pthread_rwlock_t lock_;
    LockRank rank_;
};

class CW_SCOPED_CAPABILITY ReadLock {
public:
    explicit ReadLock(RwLock& lock) CW_ACQUIRE_SHARED(lock) : lock_(lock) { lock_.lock_shared(); }
    ~ReadLock() CW_RELEASE() { lock_.unlock_shared(); }
    ReadLock(const ReadLock&) = delete;
    ReadLock& operator=(const ReadLock&) = delete;

private:
    RwLock& lock_;
};

class CW_SCOPED_CAPABILITY WriteLock {
public:
    explicit WriteLock(RwLock& lock) CW_ACQUIRE(lock) : lock_(lock) { lock_.lock(); }
    ~WriteLock() CW_RELEASE() { lock_.unlock(); }
    WriteLock(const WriteLock&) = delete;
    WriteLock& operator=(const WriteLock&) = delete;

private:
    RwLock& lock_;
};

}  // namespace cowraid
