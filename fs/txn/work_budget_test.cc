// SPDX-License-Identifier: MIT
#include "fs/txn/work_budget.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <set>
#include <span>

namespace cowraid {

namespace {

constexpr uint64_t kUs = 1000, kMs = 1'000'000;

// Users with a request at a fixed rate, and workers that take turns of a millisecond whenever they may.
class BudgetModel {
public:
    BudgetModel(uint64_t every_ns, uint64_t quiet_ns, uint64_t beside_ns)
        : every_ns_(every_ns), quiet_ns_(quiet_ns), beside_ns_(beside_ns)
    {
    }

    struct Worker {
        BackgroundWork work;
        uint64_t until_ns = 0;  // the end of its turn, or when it asks again
        bool in_turn = false;
        uint64_t turns = 0;
    };

    // The time that turns took.
    uint64_t run(std::span<Worker> workers, uint64_t for_ns)
    {
        uint64_t took = 0;
        for (const uint64_t end = now_ns_ + for_ns; now_ns_ < end; now_ns_ += kStepNs) {
            users();
            uint32_t in_turn = 0;
            for (Worker& worker : workers) {
                ask(worker);
                in_turn += worker.in_turn ? 1 : 0;
            }
            turns_at_once = std::max(turns_at_once, in_turn);
            took += in_turn > 0 ? kStepNs : 0;
            working_ = in_turn > 0;
        }
        return took;
    }

    WorkBudget budget;
    uint32_t turns_at_once = 0;
    bool users_come = true;

private:
    static constexpr uint64_t kStepNs = 10 * kUs;

    void users()
    {
        while (!ends_.empty() && *ends_.begin() <= now_ns_) {
            budget.foreground.ended(*ends_.begin());
            ends_.erase(ends_.begin());
        }
        if (!users_come || now_ns_ < next_ns_)
            return;
        budget.foreground.began(now_ns_);
        ends_.insert(now_ns_ + (working_ ? beside_ns_ : quiet_ns_));
        next_ns_ = now_ns_ + every_ns_;
    }

    void ask(Worker& worker)
    {
        if (now_ns_ < worker.until_ns)
            return;
        if (worker.in_turn)
            budget.end_turn(now_ns_);
        worker.in_turn = false;
        const uint64_t pause = budget.begin_turn(worker.work, now_ns_);
        worker.in_turn = pause == 0;
        worker.turns += worker.in_turn ? 1 : 0;
        worker.until_ns = now_ns_ + (worker.in_turn ? kMs : pause);
    }

    const uint64_t every_ns_, quiet_ns_, beside_ns_;
    uint64_t now_ns_ = 1000 * kMs, next_ns_ = 0;
    bool working_ = false;
    std::multiset<uint64_t> ends_;  // of requests under way
};

using Workers = std::array<BudgetModel::Worker, 2>;

constexpr uint64_t kSecond = 1000 * kMs;

double share_of(uint64_t took, uint64_t of)
{
    return static_cast<double>(took) / static_cast<double>(of);
}

}  // namespace

TEST_CASE("without users everybody works at the same time")
{
    BudgetModel model(100 * kUs, 50 * kUs, 50 * kUs);
    model.users_come = false;
    Workers workers{{{BackgroundWork::kScrub}, {BackgroundWork::kMove}}};
    CHECK(model.run(workers, kSecond) == kSecond);
    CHECK(model.turns_at_once == 2);
    CHECK_FALSE(model.budget.foreground.busy(2000 * kMs));
}

TEST_CASE("users that are slowed down leave the least share, users that are not half of the time")
{
    Workers workers{{{BackgroundWork::kScrub}, {BackgroundWork::kScrub}}};
    BudgetModel slowed(100 * kUs, 50 * kUs, 1000 * kUs);
    slowed.run(workers, kSecond);  // finds it out
    const double least = share_of(slowed.run(workers, 10 * kSecond), 10 * kSecond);
    CHECK(least > 0.05);
    CHECK(least < 0.08);
    CHECK(slowed.turns_at_once == 1);

    workers = {{{BackgroundWork::kScrub}, {BackgroundWork::kScrub}}};
    BudgetModel unmoved(100 * kUs, 50 * kUs, 50 * kUs);
    unmoved.run(workers, kSecond);
    const double most = share_of(unmoved.run(workers, 10 * kSecond), 10 * kSecond);
    CHECK(most > 0.45);
    CHECK(most <= 0.51);

    // Twice as slow in turns, about a quarter of the time: about a quarter slower on average.
    workers = {{{BackgroundWork::kScrub}, {BackgroundWork::kScrub}}};
    BudgetModel doubled(100 * kUs, 100 * kUs, 200 * kUs);
    doubled.run(workers, kSecond);
    const double between = share_of(doubled.run(workers, 10 * kSecond), 10 * kSecond);
    CHECK(between > 0.15);
    CHECK(between < 0.45);
}

TEST_CASE("when users go, work goes on at full speed; when they come, it gives way")
{
    Workers workers{{{BackgroundWork::kScrub}, {BackgroundWork::kScrub}}};
    BudgetModel model(100 * kUs, 50 * kUs, 1000 * kUs);
    model.run(workers, 2 * kSecond);
    model.users_come = false;
    model.run(workers, 100 * kMs);
    CHECK(model.run(workers, kSecond) == kSecond);
    model.users_come = true;
    model.run(workers, 50 * kMs);
    CHECK(share_of(model.run(workers, 4 * kSecond), 4 * kSecond) < 0.1);
}

TEST_CASE("kinds of work take turns, and one that does not ask any more is not waited for")
{
    Workers workers{{{BackgroundWork::kScrub}, {BackgroundWork::kMove}}};
    BudgetModel model(100 * kUs, 50 * kUs, 1000 * kUs);
    model.run(workers, 10 * kSecond);
    const double first = static_cast<double>(workers[0].turns),
                 second = static_cast<double>(workers[1].turns);
    CHECK(first > 100);
    CHECK(first < second * 1.1);
    CHECK(second < first * 1.1);
    const uint64_t before = workers[0].turns;
    model.run(std::span(workers).first(1), 10 * kSecond);
    CHECK(workers[0].turns - before > static_cast<uint64_t>(1.8 * first));
}

TEST_CASE("a request that is never answered holds nobody back for ever")
{
    ForegroundLoad load;
    CHECK_FALSE(load.busy(kSecond));
    load.began(kSecond);
    CHECK(load.busy(2 * kSecond));
    CHECK_FALSE(load.busy(kSecond + ForegroundLoad::kForgottenNs));
    load.began(20 * kSecond);
    load.ended(20 * kSecond + kMs);
    CHECK(load.busy(20 * kSecond + 2 * kMs));
    const ForegroundLoad::Sample before = load.sample(20 * kSecond);
    load.began(21 * kSecond);
    const ForegroundLoad::Sample after = load.sample(21 * kSecond + 5 * kMs);
    CHECK(after.count - before.count == 1);
    // The first is still under way.
    CHECK(after.time_ns - before.time_ns == kSecond + 5 * kMs + 5 * kMs);
}

}  // namespace cowraid
