// SPDX-License-Identifier: MIT
// How much background work may take while somebody uses the volume: one budget for scrub, catching up,
// balance and cleaner. Without requests of users each works at full speed. With them the workers take turns,
// one at a time, and after each turn all rest until it was share() of the time. A turn is work of devices:
// who waits for something else has none.
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
    void ended();
    // A request began within the last kQuietNs, or is under way and no older than a reader would wait.
    [[nodiscard]] bool busy(uint64_t now_ns) const;

    // Requests.
    [[nodiscard]] uint64_t under_way() const
    {
        const uint64_t ended = ended_.load(std::memory_order_relaxed);
        return begun_.load(std::memory_order_relaxed) - ended;
    }

    static constexpr uint64_t kQuietNs = 50'000'000;
    static constexpr uint64_t kForgottenNs = 10'000'000'000;

private:
    std::atomic<uint64_t> begun_{0}, ended_{0};  // requests
    std::atomic<uint64_t> newest_ns_{0};
};

enum class BackgroundWork : uint8_t {
    kScrub,
    kCatchUp,
    kCopy,  // of a member in service that is replaced
    kMove,  // balance and cleaner
};
inline constexpr size_t kBackgroundWorkCount = 4;

// Thread-safe. Its lock is a leaf.
class WorkBudget {
public:
    ForegroundLoad foreground;

    // Per cent of the time that the workers may take together beside users: 1..100. From the next turn on.
    explicit WorkBudget(uint32_t share_percent = kShareUsual) : share_(share_percent) { }
    [[nodiscard]] uint32_t share() const { return share_.load(std::memory_order_relaxed); }
    void set_share(uint32_t percent) { share_.store(percent, std::memory_order_relaxed); }

    // 0: a turn begins, until end_turn(). Else it is refused: ask again in so many nanoseconds. Workers of
    // other kinds that were refused earlier go first, if they do ask again. Copying waits a second for each
    // turn while members are caught up, users or not: their rows have no redundancy, or less.
    uint64_t begin_turn(BackgroundWork work, uint64_t now_ns);
    void end_turn(BackgroundWork work, uint64_t now_ns);
    // A turn that users themselves wait for. It waits for a turn under way only, as far as that is no longer
    // than it should be: refused as by begin_turn(). Others wait for its end, and rest half as long as it
    // took, not more: else they would have no turn while such turns come in a row.
    uint64_t begin_urgent_turn(uint64_t now_ns);
    void end_urgent_turn(uint64_t now_ns);
    // Sleeps until a turn begins.
    void wait_for_turn(BackgroundWork work);

    // Workers are held back now: what they do in one turn is to be small.
    [[nodiscard]] bool holds_back() const;
    // Of all workers.
    [[nodiscard]] uint64_t turns_begun() const;
    [[nodiscard]] uint32_t turns_under_way() const;

    static constexpr uint32_t kShareUsual = 11;
    // As long as a turn should take at most: rests are no longer than after such a one.
    static constexpr uint64_t kTurnNsMax = 250'000'000;
    // Bytes of a turn beside users. Members that do not seek (MemberSet::rotational()) read small requests at
    // the same rate as large ones, and a large one makes users wait for several times as long as their own.
    [[nodiscard]] static uint64_t held_back_bytes(uint64_t most, bool seeks)
    {
        return seeks ? most : most / 4;
    }

private:
    struct Waiter {
        uint64_t since_ns = 0;  // 0: it does not wait
        uint64_t asked_ns = 0;  // last
        uint32_t turns = 0;  // under way
    };
    [[nodiscard]] bool behind_others(BackgroundWork work, uint64_t now_ns) const CW_REQUIRES(mutex_);
    [[nodiscard]] uint64_t behind_catching_up_ns(uint64_t now_ns) CW_REQUIRES(mutex_);

    std::atomic<uint32_t> share_;
    mutable Mutex mutex_{LockRank::kLeaf};
    std::array<Waiter, kBackgroundWorkCount> waiters_ CW_GUARDED_BY(mutex_){};
    uint32_t turns_ CW_GUARDED_BY(mutex_) = 0, urgent_turns_ CW_GUARDED_BY(mutex_) = 0;  // under way
    uint64_t begun_ CW_GUARDED_BY(mutex_) = 0;
    uint64_t copy_held_ns_ CW_GUARDED_BY(mutex_) = 0;  // since then; 0: it is not
    uint64_t turn_began_ns_ CW_GUARDED_BY(mutex_) = 0;  // the first of `turns_`
    uint64_t urgent_began_ns_ CW_GUARDED_BY(mutex_) = 0;
    uint64_t rest_until_ns_ CW_GUARDED_BY(mutex_) = 0;
};

// Turns of the calling thread, one after the other, each for so many bytes of members. Locks that users'
// requests need are not held where one may begin: in left(), spend() and go_on().
class WorkTurns {
public:
    // `seeks`: as for WorkBudget::held_back_bytes().
    WorkTurns(WorkBudget& budget, BackgroundWork work, bool seeks)
        : budget_(budget), work_(work), seeks_(seeks)
    {
    }
    ~WorkTurns() { pause(); }
    WorkTurns(const WorkTurns&) = delete;
    WorkTurns& operator=(const WorkTurns&) = delete;

    // Bytes that the next one may take: while users wait, where members seek, and else.
    struct Room {
        uint64_t held_back, quiet;
    };
    // Bytes that the turn may still take. One that may take no more, or took longer than a turn should, ends,
    // and the next one begins.
    uint64_t left(const Room& room);
    void take(uint64_t bytes) { left_ -= bytes < left_ ? bytes : left_; }
    // Both.
    void spend(uint64_t bytes, const Room& room)
    {
        left(room);
        take(bytes);
    }
    // Others have turns while the thread waits for something. False: there was none under way.
    bool pause();
    void go_on();

private:
    WorkBudget& budget_;
    const BackgroundWork work_;
    const bool seeks_;
    bool under_way_ = false;
    uint64_t began_ns_ = 0;
    uint64_t left_ = 0;  // bytes
};

}  // namespace cowraid
