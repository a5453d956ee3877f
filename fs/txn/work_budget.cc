// SPDX-License-Identifier: MIT
#include "fs/txn/work_budget.h"

#include <unistd.h>

#include <algorithm>

#include "base/assert.h"
#include "base/clock.h"

namespace cowraid {

namespace {

// How much slower requests may become on average.
constexpr double kSlowdown = 0.25;
// Requests of either kind before the share is steered anew.
constexpr double kEnoughRequests = 32;
// Of a turn that took longer than it should have, as one with a commit.
constexpr uint64_t kCountedTurnNs = 100'000'000;
// Between two questions while another turn is under way.
constexpr uint64_t kAskAgainNs = 1'000'000;
// Who was refused and does not ask for so long has nothing to do any more.
constexpr uint64_t kGoneNs = 50'000'000;

}  // namespace

void ForegroundLoad::began(uint64_t now_ns)
{
    begun_ns_.fetch_add(now_ns, std::memory_order_relaxed);
    begun_.fetch_add(1, std::memory_order_relaxed);
    newest_ns_.store(now_ns, std::memory_order_relaxed);
}

void ForegroundLoad::ended(uint64_t now_ns)
{
    ended_ns_.fetch_add(now_ns, std::memory_order_relaxed);
    ended_.fetch_add(1, std::memory_order_relaxed);
}

bool ForegroundLoad::busy(uint64_t now_ns) const
{
    const uint64_t newest = newest_ns_.load(std::memory_order_relaxed);
    const bool under_way = ended_.load(std::memory_order_relaxed) != begun_.load(std::memory_order_relaxed);
    return newest != 0 && now_ns < newest + (under_way ? kForgottenNs : kQuietNs);
}

// Sums wrap around; the differences of two samples do not mind. A request that is told of meanwhile adds an
// error that is small beside the sums, and is in the next sample.
ForegroundLoad::Sample ForegroundLoad::sample(uint64_t now_ns) const
{
    const uint64_t ended = ended_.load(std::memory_order_relaxed);
    const uint64_t ended_ns = ended_ns_.load(std::memory_order_relaxed);
    const uint64_t begun_ns = begun_ns_.load(std::memory_order_relaxed);
    const uint64_t begun = begun_.load(std::memory_order_relaxed);
    return {begun, ended_ns - begun_ns + (begun - ended) * now_ns};
}

// Requests since the last call, to what was under way until now.
void WorkBudget::measure(uint64_t now_ns)
{
    const ForegroundLoad::Sample sample = foreground.sample(now_ns);
    const auto time = static_cast<int64_t>(sample.time_ns - last_.time_ns);
    Measured& measured = turns_ > 0 ? at_work_ : at_rest_;
    measured.count += static_cast<double>(sample.count - last_.count);
    measured.time_ns += static_cast<double>(std::max<int64_t>(time, 0));
    last_ = sample;
}

// With the share s, and requests r times as slow in turns as in rests, they are 1 + s (r - 1) times as slow
// on average.
void WorkBudget::steer()
{
    if (at_work_.count < kEnoughRequests || at_rest_.count < kEnoughRequests)
        return;
    const double quiet = std::max(1.0, at_rest_.time_ns / at_rest_.count);
    const double slower = at_work_.time_ns / at_work_.count / quiet - 1;
    share_ = std::clamp(kSlowdown / std::max(slower, kSlowdown), kShareLeast, kShareMost);
    for (Measured* measured : {&at_work_, &at_rest_}) {
        measured->time_ns *= kEnoughRequests / 2 / measured->count;
        measured->count = kEnoughRequests / 2;
    }
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

void WorkBudget::enter(uint64_t now_ns)
{
    measure(now_ns);
    ++begun_;
    if (turns_++ == 0)
        turn_began_ns_ = now_ns;
}

uint64_t WorkBudget::begin_turn(BackgroundWork work, uint64_t now_ns)
{
    MutexLock lock(mutex_);
    Waiter& self = waiters_[static_cast<size_t>(work)];
    uint64_t pause = 0;
    if (foreground.busy(now_ns)) {
        if (now_ns < rest_until_ns_)
            pause = rest_until_ns_ - now_ns;
        else if (turns_ > 0 || behind_others(work, now_ns))
            pause = kAskAgainNs;
    }
    if (pause > 0) {
        self.since_ns = self.since_ns == 0 ? now_ns : self.since_ns;
        self.asked_ns = now_ns + pause;
        return pause;
    }
    self.since_ns = 0;
    enter(now_ns);
    return 0;
}

void WorkBudget::begin_urgent_turn(uint64_t now_ns)
{
    MutexLock lock(mutex_);
    enter(now_ns);
}

void WorkBudget::end_turn(uint64_t now_ns)
{
    MutexLock lock(mutex_);
    CW_ASSERT(turns_ > 0);
    measure(now_ns);
    steer();
    if (--turns_ > 0)
        return;
    const uint64_t took = std::min(kCountedTurnNs, now_ns - std::min(now_ns, turn_began_ns_));
    rest_until_ns_ = now_ns + static_cast<uint64_t>(static_cast<double>(took) * (1 / share_ - 1));
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

uint32_t WorkBudget::share_percent() const
{
    MutexLock lock(mutex_);
    return static_cast<uint32_t>(share_ * 100 + 0.5);
}

uint64_t WorkBudget::turns_begun() const
{
    MutexLock lock(mutex_);
    return begun_;
}

WorkTurn::~WorkTurn()
{
    budget_.end_turn(monotonic_ns());
}

}  // namespace cowraid
