// SPDX-License-Identifier: MIT
#include "fuse/serving_threads.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace cowraid {

namespace {

constexpr useconds_t kTickUs = 1000;
// One preemption for so many requests: threads wait for processors.
constexpr uint64_t kRequestsPerPreemption = 8;

void wait_for(sem_t& semaphore)
{
    while (sem_wait(&semaphore) != 0) { }  // a signal
}

uint64_t preemptions_of_this_thread()
{
    rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? static_cast<uint64_t>(usage.ru_nivcsw) : 0;
}

bool crowded(uint64_t taken, uint64_t preempted)
{
    return preempted * kRequestsPerPreemption >= taken;
}

}  // namespace

// Of threads that wait for processors fewer are enough. Not so when they take fewer requests than one each
// millisecond for each of the least: whatever these wait for, others may need something else.
void ThreadLimit::nobody_looks(const Tick& tick)
{
    const bool lasting = tick.taken < least_ * tick.milliseconds;
    if (lasting || !crowded(tick.taken, tick.preempted))
        value_ = std::min(most_, value_ * 2);
    else
        value_ = std::max(least_, value_ - std::max(1U, value_ / 8));
}

bool ThreadLimit::tick(const Tick& tick)
{
    if (tick.looking == 0) {
        nobody_looks(tick);
        quiet_ = {};
        return true;
    }
    quiet_.busy = std::max(quiet_.busy, tick.taking_part - std::min(tick.taking_part, tick.looking));
    quiet_.taken += tick.taken;
    quiet_.preempted += tick.preempted;
    if (++quiet_.ticks < kQuietTicks)
        return true;
    calm_down();
    quiet_ = {};
    return false;
}

// As many as were at requests, and for those that come beside these some more: they may be at theirs for
// long. Where processors are the limit nobody is.
void ThreadLimit::calm_down()
{
    const bool is_crowded = crowded(quiet_.taken, quiet_.preempted);
    value_ = std::clamp(quiet_.busy + (is_crowded ? 0 : least_), least_, value_);
}

ServingThreads::ServingThreads(uint32_t least, uint32_t most)
    : has_reserve_(least < most), policy_(least, most), limit_(least)
{
    sem_init(&promotion_, 0, 0);
    sem_init(&work_for_watch_, 0, 0);
}

ServingThreads::~ServingThreads()
{
    finish();
    sem_destroy(&promotion_);
    sem_destroy(&work_for_watch_);
}

Status ServingThreads::start()
{
    return has_reserve_ ? watch_.start([this] { watch(); }) : Status();
}

void ServingThreads::finish()
{
    if (!watch_.started())
        return;
    ending_ = true;
    sem_post(&work_for_watch_);
    watch_.join();
}

// Once in a while: it is a system call.
void ServingThreads::count_preemptions()
{
    constexpr uint32_t kRequestsPerCount = 8;
    static thread_local uint32_t requests = 0;
    static thread_local uint64_t counted = 0;
    if (!busy() || ++requests % kRequestsPerCount != 0)
        return;
    const uint64_t preemptions = preemptions_of_this_thread();
    preempted_ += preemptions - std::exchange(counted, preemptions);
}

void ServingThreads::before_read()
{
    if (!has_reserve_)
        return;
    count_preemptions();
    static thread_local const ServingThreads* joined = nullptr;
    if (joined != this) {
        joined = this;
        ++taking_part_;
    }
    while (taking_part_ > limit_)
        stand_back();
    ++looking_;
}

void ServingThreads::stand_back()
{
    {
        MutexLock lock(mutex_);
        if (taking_part_ <= limit_)
            return;
        --taking_part_;
        ++reserve_;
    }
    wait_for(promotion_);
}

void ServingThreads::after_read()
{
    if (!has_reserve_)
        return;
    ++taken_;
    --looking_;
    watch_if_nobody_looks();
}

// Threads that libfuse has not started yet might look: for a request that forgets it starts none, and a
// program that removes files keeps one of two threads at these.
uint32_t ServingThreads::might_look() const
{
    const uint32_t limit = limit_, started = taking_part_;
    return looking_ + (limit - std::min(limit, started));
}

void ServingThreads::watch_if_nobody_looks()
{
    if (might_look() == 0 && !watched_.exchange(true))
        sem_post(&work_for_watch_);
}

void ServingThreads::set_limit(uint32_t limit)
{
    MutexLock lock(mutex_);
    limit_ = limit;
    for (; reserve_ > 0 && taking_part_ < limit; --reserve_) {
        ++taking_part_;
        sem_post(&promotion_);
    }
}

void ServingThreads::watch_busy()
{
    uint64_t last_us = monotonic_ns() / 1000;
    taken_ = 0;
    preempted_ = 0;
    bool is_busy = true;
    while (is_busy && !ending_) {
        usleep(kTickUs);
        const uint64_t now_us = monotonic_ns() / 1000;
        is_busy = policy_.tick({.taking_part = taking_part_,
                                .looking = might_look(),
                                .milliseconds = std::max<uint64_t>(1, (now_us - last_us) / kTickUs),
                                .taken = taken_.exchange(0),
                                .preempted = preempted_.exchange(0)});
        last_us = now_us;
        set_limit(policy_.value());
    }
}

void ServingThreads::watch()
{
    pthread_setname_np(pthread_self(), "cowraid-serving");
    while (true) {
        wait_for(work_for_watch_);
        if (ending_)
            return;
        watch_busy();
        watched_ = false;
        watch_if_nobody_looks();
    }
}

}  // namespace cowraid
