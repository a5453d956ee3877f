// SPDX-License-Identifier: MIT
// How much background work may take while somebody uses the volume: one budget for scrub, catching up,
// balance and cleaner. Without requests of users each works at full speed. With them the workers take turns,
// one at a time, with a rest after each turn. The rest is as long as keeps the mean latency of requests
// within a quarter of what it is in the rests; a least share is always left to the workers.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/mutex.h"

namespace cowraid {

// Requests of users, told by the front end. Times are nanoseconds of monotonic_ns(). Thread-safe, no locks.
class ForegroundLoad {
public:
    void began(uint64_t now_ns);
    void ended(uint64_t now_ns);
    // A request began within the last kQuietNs, or is under way and no older than a reader would wait.
    [[nodiscard]] bool busy(uint64_t now_ns) const;

    // Requests begun until now, and the sum of the times that they have been under way. Only differences mean
    // anything: time by count is the mean latency (Little's law), requests under way included.
    struct Sample {
        uint64_t count = 0, time_ns = 0;
    };
    [[nodiscard]] Sample sample(uint64_t now_ns) const;

    static constexpr uint64_t kQuietNs = 50'000'000;
    static constexpr uint64_t kForgottenNs = 10'000'000'000;

private:
    std::atomic<uint64_t> begun_{0}, begun_ns_{0};  // how many, and the sum of the times
    std::atomic<uint64_t> ended_{0}, ended_ns_{0};
    std::atomic<uint64_t> newest_ns_{0};
};

enum class BackgroundWork : uint8_t { kScrub, kCatchUp, kMove };  // the last one: balance and cleaner
inline constexpr size_t kBackgroundWorkCount = 3;

// Thread-safe. Its lock is a leaf.
class WorkBudget {
public:
    ForegroundLoad foreground;

    // 0: a turn begins, until end_turn(). Else it is refused: ask again in so many nanoseconds. Workers of
    // other kinds that were refused earlier go first, if they do ask again.
    uint64_t begin_turn(BackgroundWork work, uint64_t now_ns);
    // A turn that nobody may refuse: the users themselves wait for what it does.
    void begin_urgent_turn(uint64_t now_ns);
    void end_turn(uint64_t now_ns);
    // Sleeps until a turn begins.
    void wait_for_turn(BackgroundWork work);

    // Workers are held back now: what they do in one turn is to be small.
    [[nodiscard]] bool holds_back() const;
    // Share of the time that turns have while users are busy, in percent.
    [[nodiscard]] uint32_t share_percent() const;
    // Of all workers.
    [[nodiscard]] uint64_t turns_begun() const;

    static constexpr double kShareLeast = 1.0 / 16, kShareMost = 0.5;

private:
    // Of requests while no turn, or one, was under way.
    struct Measured {
        double count = 0, time_ns = 0;
    };
    struct Waiter {
        uint64_t since_ns = 0;  // 0: it does not wait
        uint64_t asked_ns = 0;  // last
    };
    void measure(uint64_t now_ns) CW_REQUIRES(mutex_);
    void steer() CW_REQUIRES(mutex_);
    [[nodiscard]] bool behind_others(BackgroundWork work, uint64_t now_ns) const CW_REQUIRES(mutex_);
    void enter(uint64_t now_ns) CW_REQUIRES(mutex_);

    mutable Mutex mutex_{LockRank::kLeaf};
    std::array<Waiter, kBackgroundWorkCount> waiters_ CW_GUARDED_BY(mutex_){};
    uint32_t turns_ CW_GUARDED_BY(mutex_) = 0;  // under way
    uint64_t begun_ CW_GUARDED_BY(mutex_) = 0;
    uint64_t turn_began_ns_ CW_GUARDED_BY(mutex_) = 0;  // the first of them
    uint64_t rest_until_ns_ CW_GUARDED_BY(mutex_) = 0;
    ForegroundLoad::Sample last_ CW_GUARDED_BY(mutex_);
    Measured at_rest_ CW_GUARDED_BY(mutex_), at_work_ CW_GUARDED_BY(mutex_);
    double share_ CW_GUARDED_BY(mutex_) = 0.125;
};

// A turn of the calling thread for as long as it exists; waits for it to begin. Locks that users' requests
// need are not held meanwhile.
class WorkTurn {
public:
    WorkTurn(WorkBudget& budget, BackgroundWork work) : budget_(budget) { budget_.wait_for_turn(work); }
    ~WorkTurn();
    WorkTurn(const WorkTurn&) = delete;
    WorkTurn& operator=(const WorkTurn&) = delete;

private:
    WorkBudget& budget_;
};

}  // namespace cowraid
