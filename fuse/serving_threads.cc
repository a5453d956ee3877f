// SPDX-License-Identifier: MIT
#include "fuse/serving_threads.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

namespace cowraid {

namespace {

constexpr useconds_t kTickUs = 1000;
// One preemption for so many requests: threads wait for processors.
constexpr uint64_t kRequestsPerPreemption = 8;

void wait_for(sem_t& semaphore)
{
    while (sem_wait(&semaphore) != 0) { }  // a signal
}

uint64_t preemptions()
{
    rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<uint64_t>(usage.ru_nivcsw) : 0;
}

}  // namespace

// Of threads that wait for processors fewer are enough. Not so when each is at its request for longer than a
// tick: whatever that waits for, others may need something else.
void ThreadLimit::nobody_looks(const Tick& tick)
{
    const bool lasting = tick.taken < least_;
    const bool crowded = tick.preempted * kRequestsPerPreemption >= tick.taken;
    if (lasting || !crowded)
        value_ = std::min(most_, value_ * 2);
    else
        value_ = std::max(least_, value_ - std::max(1U, value_ / 8));
}

bool ThreadLimit::tick(const Tick& tick)
{
    if (tick.looking == 0) {
        nobody_looks(tick);
        quiet_ = 0;
        busy_ = 0;
        return true;
    }
    busy_ = std::max(busy_, tick.taking_part - std::min(tick.taking_part, tick.looking));
    if (++quiet_ < kQuietTicks)
        return true;
    value_ = std::clamp(busy_, least_, value_);
    quiet_ = 0;
    busy_ = 0;
    return false;
}

ServingThreads::ServingThreads(uint32_t least, uint32_t most) : policy_(least, most), limit_(least)
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

void ServingThreads::start()
{
    watch_ = std::thread([this] { watch(); });
}

void ServingThreads::finish()
{
    if (!watch_.joinable())
        return;
    ending_ = true;
    sem_post(&work_for_watch_);
    watch_.join();
}

void ServingThreads::before_read()
{
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
    ++taken_;
    if (--looking_ == 0 && !watched_.exchange(true))
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
    uint64_t preempted_before = preemptions();
    taken_ = 0;
    bool busy = true;
    while (busy && !ending_) {
        usleep(kTickUs);
        const uint64_t preempted = preemptions();
        busy = policy_.tick({.taking_part = taking_part_,
                             .looking = looking_,
                             .taken = taken_.exchange(0),
                             .preempted = preempted - preempted_before});
        preempted_before = preempted;
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
        if (looking_ == 0 && !watched_.exchange(true))
            sem_post(&work_for_watch_);
    }
}

}  // namespace cowraid
