// SPDX-License-Identifier: MIT
#include "fs/txn/work_budget.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/clock.h"

namespace cowraid {

namespace {

// Between two questions while another turn is under way.
constexpr uint64_t kAskAgainNs = 1'000'000;
// Who was refused and does not ask for so long has nothing to do any more.
constexpr uint64_t kGoneNs = 50'000'000;
// So long a turn of copying waits while members are caught up. Not without end: who copies notices in its
// turns that one of the two devices failed.
constexpr uint64_t kCopyHeldNs = 1'000'000'000;

}  // namespace

void ForegroundLoad::began(uint64_t now_ns)
{
    begun_.fetch_add(1, std::memory_order_relaxed);
    newest_ns_.store(now_ns, std::memory_order_relaxed);
}

void ForegroundLoad::ended()
{
    ended_.fetch_add(1, std::memory_order_relaxed);
}

bool ForegroundLoad::busy(uint64_t now_ns) const
{
    const uint64_t newest = newest_ns_.load(std::memory_order_relaxed);
    return newest != 0 && now_ns < newest + (under_way() > 0 ? kForgottenNs : kQuietNs);
}

bool WorkBudget::behind_others(BackgroundWork work, uint64_t now_ns) const
{
    const Waiter& self = waiters_[static_cast<size_t>(work)];
    const uint64_t since = self.since_ns == 0 ? now_ns : self.since_ns;
    return std::any_of(waiters_.begin(), waiters_.end(), [&](const Waiter& other) {
        return &other != &self && other.since_ns != 0 && other.since_ns < since &&
               now_ns < other.asked_ns + kGoneNs;
    });
}

// How long copying still has to wait. Nobody waits behind it meanwhile.
uint64_t WorkBudget::behind_catching_up_ns(uint64_t now_ns)
{
    const Waiter& other = waiters_[static_cast<size_t>(BackgroundWork::kCatchUp)];
    if (other.turns == 0 && (other.since_ns == 0 || now_ns >= other.asked_ns + kGoneNs))
        copy_held_ns_ = 0;
    else if (copy_held_ns_ == 0)
        copy_held_ns_ = now_ns;
    const uint64_t until = copy_held_ns_ == 0 ? 0 : copy_held_ns_ + kCopyHeldNs;
    return until > now_ns ? until - now_ns : 0;
}

uint64_t WorkBudget::begin_turn(BackgroundWork work, uint64_t now_ns)
{
    MutexLock lock(mutex_);
    Waiter& self = waiters_[static_cast<size_t>(work)];
    if (work == BackgroundWork::kCopy)
        if (const uint64_t held = behind_catching_up_ns(now_ns); held > 0) {
            self.since_ns = 0;
            return held;
        }
    uint64_t pause = 0;
    if (foreground.busy(now_ns)) {
        if (now_ns < rest_until_ns_)
            pause = rest_until_ns_ - now_ns;
        else if (turns_ + urgent_turns_ > 0 || behind_others(work, now_ns))
            pause = kAskAgainNs;
    }
    if (pause > 0) {
        self.since_ns = self.since_ns == 0 ? now_ns : self.since_ns;
        self.asked_ns = now_ns + pause;
        return pause;
    }
    if (work == BackgroundWork::kCopy)
        copy_held_ns_ = 0;
    self.since_ns = 0;
    ++self.turns;
    ++begun_;
    if (turns_++ == 0)
        turn_began_ns_ = now_ns;
    return 0;
}

void WorkBudget::end_turn(BackgroundWork work, uint64_t now_ns)
{
    MutexLock lock(mutex_);
    Waiter& self = waiters_[static_cast<size_t>(work)];
    CW_ASSERT(turns_ > 0 && self.turns > 0);
    --self.turns;
    if (--turns_ > 0)
        return;
    const uint64_t took = std::min(kTurnNsMax, now_ns - std::min(now_ns, turn_began_ns_));
    rest_until_ns_ = now_ns + took * (100 - share()) / share();
}

uint64_t WorkBudget::begin_urgent_turn(uint64_t now_ns)
{
    MutexLock lock(mutex_);
    if (foreground.busy(now_ns) && turns_ > 0 && now_ns < turn_began_ns_ + kTurnNsMax)
        return kAskAgainNs;
    ++begun_;
    ++urgent_turns_;
    urgent_began_ns_ = now_ns;
    return 0;
}

void WorkBudget::end_urgent_turn(uint64_t now_ns)
{
    MutexLock lock(mutex_);
    CW_ASSERT(urgent_turns_ > 0);
    --urgent_turns_;
    const uint64_t took = std::min(kTurnNsMax, now_ns - std::min(now_ns, urgent_began_ns_));
    rest_until_ns_ = std::max(rest_until_ns_, now_ns + took / 2);
}

// The foreground may become quiet meanwhile: no sleep is longer than it takes to see that.
void WorkBudget::wait_for_turn(BackgroundWork work)
{
    while (const uint64_t pause = begin_turn(work, monotonic_ns()))
        usleep(static_cast<useconds_t>(std::min(pause, ForegroundLoad::kQuietNs) / 1000 + 1));
}

bool WorkBudget::holds_back() const
{
    return foreground.busy(monotonic_ns());
}

uint64_t WorkBudget::turns_begun() const
{
    MutexLock lock(mutex_);
    return begun_;
}

uint32_t WorkBudget::turns_under_way() const
{
    MutexLock lock(mutex_);
    return turns_ + urgent_turns_;
}

uint64_t WorkTurns::left(const Room& room)
{
    if (under_way_ && left_ > 0 && monotonic_ns() < began_ns_ + WorkBudget::kTurnNsMax)
        return left_;
    pause();
    go_on();
    left_ = budget_.holds_back() ? WorkBudget::held_back_bytes(room.held_back, seeks_) : room.quiet;
    return left_;
}

void WorkTurns::go_on()
{
    budget_.wait_for_turn(work_);
    under_way_ = true;
    began_ns_ = monotonic_ns();
}

bool WorkTurns::pause()
{
    if (under_way_)
        budget_.end_turn(work_, monotonic_ns());
    return std::exchange(under_way_, false);
}

}  // namespace cowraid
