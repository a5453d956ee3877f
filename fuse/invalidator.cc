// SPDX-License-Identifier: MIT
#include "fuse/invalidator.h"

#include <utility>

namespace cowraid {

void Invalidator::start()
{
    thread_ = std::thread([this] { run(); });
}

Invalidator::~Invalidator()
{
    if (!thread_.joinable())
        return;
    {
        MutexLock lock(mutex_);
        stopping_ = true;
        changed_.notify_all();
    }
    thread_.join();
}

void Invalidator::finish()
{
    MutexLock lock(mutex_);
    while (!writes_.empty() || working_)
        changed_.wait(mutex_);
    finished_ = true;
}

bool Invalidator::enter()
{
    if (write_count_.fetch_add(1, std::memory_order_relaxed) < write_count_max_)
        return true;
    leave();
    return false;
}

void Invalidator::submit(std::unique_ptr<HeldAnswer> write)
{
    MutexLock lock(mutex_);
    writes_.push_back(std::move(write));
    changed_.notify_all();
}

void Invalidator::run()
{
    while (true) {
        std::unique_ptr<HeldAnswer> write;
        bool dropping = true;
        {
            MutexLock lock(mutex_);
            working_ = false;
            if (writes_.empty())
                changed_.notify_all();
            while (writes_.empty() && !stopping_)
                changed_.wait(mutex_);
            if (writes_.empty())
                return;
            write = std::move(writes_.front());
            writes_.pop_front();
            working_ = true;
            dropping = !finished_;
        }
        if (dropping)
            write->drop();
        write->answer();
        leave();
    }
}

}  // namespace cowraid
