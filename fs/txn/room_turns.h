// SPDX-License-Identifier: MIT
// Whose turn it is to get room on a nearly full volume.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/mutex.h"

namespace cowraid {

// Usually everybody takes what there is. One who got nothing takes a turn alone, so that what commits make
// free is left for that one, and the answer after them is final: also for others who came before it and want
// as much.
class RoomTurns {
public:
    // Somebody has a turn alone: others wait.
    [[nodiscard]] bool exclusive() const { return exclusive_.load(std::memory_order_acquire); }
    void wait_shared();
    // How many turns alone there were.
    [[nodiscard]] uint64_t count() const { return count_.load(std::memory_order_acquire); }
    // Whether somebody whose turn began after count() said `mark` was refused `wanted`, or less: all that was
    // freed before then was in the commits that were made in that turn.
    [[nodiscard]] bool refused_since(uint64_t mark, uint64_t wanted) const;
    // Waits while another has a turn. False, and it is none: refused_since().
    [[nodiscard]] bool begin(uint64_t mark, uint64_t wanted);
    void end();
    void end_refused(uint64_t wanted);

private:
    [[nodiscard]] bool refused(uint64_t mark, uint64_t wanted) const CW_REQUIRES(mutex_);

    mutable Mutex mutex_{LockRank::kLeaf};
    CondVar ended_;
    std::atomic<bool> exclusive_{false};  // changed under the mutex, as the next
    std::atomic<uint64_t> count_{0};
    // Of the last that ended in a refusal: its number, and what was wanted.
    uint64_t refused_turn_ CW_GUARDED_BY(mutex_) = 0;
    uint64_t refused_wanted_ CW_GUARDED_BY(mutex_) = 0;
};

}  // namespace cowraid
