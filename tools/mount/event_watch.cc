// SPDX-License-Identifier: MIT
#include "tools/mount/event_watch.h"

namespace cowraid {

namespace {

constexpr uint64_t kLookMilliseconds = 1000;

}  // namespace

Status EventWatch::start()
{
    return thread_.start([this] { run(); });
}

EventWatch::~EventWatch()
{
    {
        MutexLock lock(mutex_);
        stopping_ = true;
        changed_.notify_all();
    }
    thread_.join();
}

void EventWatch::run()
{
    for (bool last = false;;) {
        commands_.look_for_events();
        if (last)
            return;
        MutexLock lock(mutex_);
        if (!stopping_)
            changed_.wait_for(mutex_, kLookMilliseconds);
        last = stopping_;
    }
}

}  // namespace cowraid
