// SPDX-License-Identifier: MIT
#include "base/mutex.h"

#include <cerrno>
#include <ctime>

#include "base/assert.h"

namespace cowraid {

namespace {

#ifdef COWRAID_DEBUG
// Ranks this thread holds, as counts.
thread_local uint32_t held[static_cast<size_t>(LockRank::kEnd)];
thread_local uint64_t taken[static_cast<size_t>(LockRank::kEnd)];

void note_acquire(LockRank rank, bool nested)
{
    const auto index = static_cast<size_t>(rank);
    for (size_t higher = index + (nested ? 1 : 0); higher < static_cast<size_t>(LockRank::kEnd); ++higher)
        CW_ASSERT(held[higher] == 0);
    ++held[index];
    ++taken[index];
}

// A try_lock cannot wait, so it cannot deadlock: it is counted, not ordered.
void note_try(LockRank rank)
{
    ++held[static_cast<size_t>(rank)];
    ++taken[static_cast<size_t>(rank)];
}

void note_release(LockRank rank)
{
    CW_ASSERT(held[static_cast<size_t>(rank)] > 0);
    --held[static_cast<size_t>(rank)];
}
const void* this_thread()
{
    return held;
}
#else
const void* this_thread()
{
    return nullptr;
}
void note_acquire(LockRank, bool) { }
void note_try(LockRank) { }
void note_release(LockRank) { }
#endif

}  // namespace

uint64_t locks_taken([[maybe_unused]] LockRank rank)
{
#ifdef COWRAID_DEBUG
    return taken[static_cast<size_t>(rank)];
#else
    return 0;
#endif
}

Mutex::Mutex(LockRank rank) : rank_(rank)
{
    CW_ASSERT(pthread_mutex_init(&mutex_, nullptr) == 0);
}

Mutex::~Mutex()
{
    pthread_mutex_destroy(&mutex_);
}

void Mutex::lock()
{
    note_acquire(rank_, false);
    CW_ASSERT(pthread_mutex_lock(&mutex_) == 0);
    set_holder(this_thread());
}

void Mutex::lock_nested()
{
    note_acquire(rank_, true);
    CW_ASSERT(pthread_mutex_lock(&mutex_) == 0);
    set_holder(this_thread());
}

bool Mutex::try_lock()
{
    if (pthread_mutex_trylock(&mutex_) != 0)
        return false;
    note_try(rank_);
    set_holder(this_thread());
    return true;
}

void Mutex::assert_held() const
{
#ifdef COWRAID_DEBUG
    CW_ASSERT(holder_.load(std::memory_order_relaxed) == this_thread());
#endif
}

void Mutex::unlock()
{
    note_release(rank_);
    set_holder(nullptr);
    CW_ASSERT(pthread_mutex_unlock(&mutex_) == 0);
}

CondVar::CondVar()
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    CW_ASSERT(pthread_cond_init(&condition_, &attributes) == 0);
    pthread_condattr_destroy(&attributes);
}

CondVar::~CondVar()
{
    pthread_cond_destroy(&condition_);
}

void CondVar::wait(Mutex& mutex)
{
    mutex.set_holder(nullptr);
    CW_ASSERT(pthread_cond_wait(&condition_, &mutex.mutex_) == 0);
    mutex.set_holder(this_thread());
}

bool CondVar::wait_for(Mutex& mutex, uint64_t milliseconds)
{
    timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += static_cast<time_t>(milliseconds / 1000);
    until.tv_nsec += static_cast<long>(milliseconds % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        ++until.tv_sec;
    }
    mutex.set_holder(nullptr);
    const int result = pthread_cond_timedwait(&condition_, &mutex.mutex_, &until);
    mutex.set_holder(this_thread());
    CW_ASSERT(result == 0 || result == ETIMEDOUT);
    return result == 0;
}

void CondVar::notify_one()
{
    pthread_cond_signal(&condition_);
}

void CondVar::notify_all()
{
    pthread_cond_broadcast(&condition_);
}

RwLock::RwLock(LockRank rank) : rank_(rank)
{
    // Writers first: a stream of operations must not starve the one who closes the generation.
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    CW_ASSERT(pthread_rwlock_init(&lock_, &attributes) == 0);
    pthread_rwlockattr_destroy(&attributes);
}

RwLock::~RwLock()
{
    pthread_rwlock_destroy(&lock_);
}

void RwLock::lock()
{
    note_acquire(rank_, false);
    CW_ASSERT(pthread_rwlock_wrlock(&lock_) == 0);
}

void RwLock::unlock()
{
    note_release(rank_);
    CW_ASSERT(pthread_rwlock_unlock(&lock_) == 0);
}

void RwLock::lock_shared()
{
    note_acquire(rank_, false);
    CW_ASSERT(pthread_rwlock_rdlock(&lock_) == 0);
}

void RwLock::unlock_shared()
{
    note_release(rank_);
    CW_ASSERT(pthread_rwlock_unlock(&lock_) == 0);
}

}  // namespace cowraid
