// SPDX-License-Identifier: MIT
#include "fs/txn/room_turns.h"

namespace cowraid {

void RoomTurns::wait_shared()
{
    if (!exclusive())
        return;
    MutexLock lock(mutex_);
    while (exclusive_)
        ended_.wait(mutex_);
}

bool RoomTurns::refused(uint64_t mark, uint64_t wanted) const
{
    return refused_turn_ > mark && wanted >= refused_wanted_;
}

bool RoomTurns::refused_since(uint64_t mark, uint64_t wanted) const
{
    MutexLock lock(mutex_);
    return refused(mark, wanted);
}

bool RoomTurns::begin(uint64_t mark, uint64_t wanted)
{
    MutexLock lock(mutex_);
    while (exclusive_)
        ended_.wait(mutex_);
    if (refused(mark, wanted))
        return false;
    ++count_;
    exclusive_ = true;
    return true;
}

void RoomTurns::end()
{
    MutexLock lock(mutex_);
    exclusive_ = false;
    ended_.notify_all();
}

void RoomTurns::end_refused(uint64_t wanted)
{
    MutexLock lock(mutex_);
    refused_turn_ = count_;
    refused_wanted_ = wanted;
    exclusive_ = false;
    ended_.notify_all();
}

}  // namespace cowraid
