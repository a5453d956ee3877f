// SPDX-License-Identifier: MIT
#include "fuse/invalidator.h"

#include <utility>

namespace cowraid {

Status Invalidator::start()
{
    return thread_.start([this] { run(); });
}

Invalidator::~Invalidator()
{
    if (!thread_.started())
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
    closing_ = true;
    while (!answers_.empty() || working_)
        changed_.wait(mutex_);
}

bool Invalidator::enter(uint32_t uid)
{
    const uint32_t count = write_count_.fetch_add(1, std::memory_order_relaxed);
    const uint32_t own_count = count_of(uid).fetch_add(1, std::memory_order_relaxed);
    const uint32_t most = own_count < kFewWrites ? write_count_max_ + write_count_max_ / 2 : write_count_max_;
    if (count < most)
        return true;
    leave(uid);
    return false;
}

void Invalidator::leave(uint32_t uid)
{
    write_count_.fetch_sub(1, std::memory_order_relaxed);
    count_of(uid).fetch_sub(1, std::memory_order_relaxed);
}

void Invalidator::submit(uint32_t uid, std::unique_ptr<HeldAnswer> answer)
{
    {
        MutexLock lock(mutex_);
        if (!closing_) {
            answers_.push(uid, std::move(answer));
            changed_.notify_all();
            return;
        }
    }
    answer->refuse();
}

void Invalidator::run()
{
    while (true) {
        std::unique_ptr<HeldAnswer> answer;
        {
            MutexLock lock(mutex_);
            working_ = false;
            if (answers_.empty())
                changed_.notify_all();
            while (answers_.empty() && !stopping_)
                changed_.wait(mutex_);
            if (answers_.empty())
                return;
            answer = answers_.take();
            working_ = true;
        }
        answer->drop();
        answer->answer();
    }
}

}  // namespace cowraid
