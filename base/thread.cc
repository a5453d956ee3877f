// SPDX-License-Identifier: MIT
#include "base/thread.h"

#include <atomic>

namespace cowraid {

namespace {

std::atomic<uint32_t> threads_left{kThreadsUnlimited};

bool may_start()
{
    uint32_t left = threads_left.load();
    while (left != kThreadsUnlimited && left > 0 && !threads_left.compare_exchange_weak(left, left - 1)) { }
    return left > 0;
}

}  // namespace

void limit_threads(uint32_t count)
{
    threads_left.store(count);
}

Status Thread::start(void* (*main)(void*), void* argument)
{
    CW_ASSERT(!started_);
    started_ = may_start() && pthread_create(&thread_, nullptr, main, argument) == 0;
    return started_ ? Err::kOk : Err::kNoThread;
}

void Thread::join()
{
    if (std::exchange(started_, false))
        pthread_join(thread_, nullptr);
}

}  // namespace cowraid
