// SPDX-License-Identifier: MIT
#include "fs/txn/work_budget.h"

#include <doctest/doctest.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <span>

#include "base/clock.h"

namespace cowraid {

namespace {

constexpr uint64_t kUs = 1000, kMs = 1'000'000;

// Users with a request every 100 us, answered at once, and workers that take turns of a millisecond whenever
// they may.
class BudgetModel {
public:
    struct Worker {
        BackgroundWork work;
        uint64_t until_ns = 0;  // the end of its turn, or when it asks again
        bool in_turn = false;
        uint64_t turns = 0;
        bool urgent = false;  // with a pause as long after each turn
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
        if (!users_come || now_ns_ % (100 * kUs) != 0)
            return;
        budget.foreground.began(now_ns_);
        budget.foreground.ended();
    }

    void ask(Worker& worker)
    {
        if (now_ns_ < worker.until_ns)
            return;
        uint64_t pause = 0;
        if (worker.urgent) {
            if (worker.in_turn)
                budget.end_urgent_turn(now_ns_);
            pause = worker.in_turn ? kMs : budget.begin_urgent_turn(now_ns_);
        } else {
            if (worker.in_turn)
                budget.end_turn(worker.work, now_ns_);
            pause = budget.begin_turn(worker.work, now_ns_);
        }
        worker.in_turn = pause == 0;
        worker.turns += worker.in_turn ? 1 : 0;
        worker.until_ns = now_ns_ + (worker.in_turn ? kMs : pause);
    }

    uint64_t now_ns_ = 1000 * kMs;
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
    BudgetModel model;
    model.users_come = false;
    Workers workers{{{BackgroundWork::kScrub}, {BackgroundWork::kMove}}};
    CHECK(model.run(workers, kSecond) == kSecond);
    CHECK(model.turns_at_once == 2);
    CHECK_FALSE(model.budget.foreground.busy(2000 * kMs));
}

TEST_CASE("beside users workers have 11 per cent of the time, one at a time")
{
    Workers workers{{{BackgroundWork::kScrub}, {BackgroundWork::kScrub}}};
    BudgetModel model;
    const double share = share_of(model.run(workers, 10 * kSecond), 10 * kSecond);
    CHECK(share > 0.1);
    CHECK(share < 0.12);
    CHECK(model.turns_at_once == 1);
}

TEST_CASE("the share that workers have beside users can be chosen, and changed")
{
    Workers workers{{{BackgroundWork::kScrub}, {BackgroundWork::kScrub}}};
    BudgetModel model;
    for (const uint32_t percent : {50u, 3u, 90u}) {
        model.budget.set_share(percent);
        model.run(workers, 4 * kSecond);
        const double share = 100 * share_of(model.run(workers, 40 * kSecond), 40 * kSecond);
        CHECK(share > 0.85 * percent);
        CHECK(share < 1.1 * percent);
    }
    model.budget.set_share(100);
    model.run(workers, 4 * kSecond);
    CHECK(share_of(model.run(workers, 10 * kSecond), 10 * kSecond) > 0.9);
    CHECK(model.turns_at_once == 1);
}

TEST_CASE("when users go, work goes on at full speed; when they come, it gives way")
{
    Workers workers{{{BackgroundWork::kScrub}, {BackgroundWork::kScrub}}};
    BudgetModel model;
    model.run(workers, 2 * kSecond);
    model.users_come = false;
    model.run(workers, 100 * kMs);
    CHECK(model.run(workers, kSecond) == kSecond);
    model.users_come = true;
    model.run(workers, 50 * kMs);
    CHECK(share_of(model.run(workers, 4 * kSecond), 4 * kSecond) < 0.14);
}

TEST_CASE("rows without redundancy come first: copying has a turn a second meanwhile")
{
    for (const bool users_come : {true, false}) {
        CAPTURE(users_come);
        Workers workers{{{BackgroundWork::kCatchUp}, {BackgroundWork::kCopy}}};
        BudgetModel model;
        model.users_come = users_come;
        model.run(workers, 20 * kSecond);
        CHECK(workers[0].turns > (users_come ? 1500 : 15000));
        CHECK(workers[1].turns > 15);
        CHECK(workers[1].turns < 25);
    }
    // Others do not wait behind it.
    std::array<BudgetModel::Worker, 3> three{
        {{BackgroundWork::kCopy}, {BackgroundWork::kCatchUp}, {BackgroundWork::kMove}}};
    BudgetModel model;
    model.run(three, 20 * kSecond);
    CHECK(three[0].turns < 25);
    CHECK(three[1].turns > 900);
    CHECK(three[2].turns > 900);
    WorkBudget budget;
    REQUIRE(budget.begin_turn(BackgroundWork::kCatchUp, kSecond) == 0);
    CHECK(budget.begin_turn(BackgroundWork::kCopy, kSecond + kMs) == kSecond);
    budget.end_turn(BackgroundWork::kCatchUp, kSecond + 2 * kMs);
    CHECK(budget.begin_turn(BackgroundWork::kCopy, kSecond + 2 * kMs) == 0);
}

TEST_CASE("kinds of work take turns, and one that does not ask any more is not waited for")
{
    Workers workers{{{BackgroundWork::kScrub}, {BackgroundWork::kMove}}};
    BudgetModel model;
    model.run(workers, 10 * kSecond);
    const double first = static_cast<double>(workers[0].turns),
                 second = static_cast<double>(workers[1].turns);
    CHECK(first > 100);
    CHECK(first < second * 1.1);
    CHECK(second < first * 1.1);
    while (workers[1].in_turn)
        model.run(workers, kMs);
    const uint64_t before = workers[0].turns;
    model.run(std::span(workers).first(1), 10 * kSecond);
    CHECK(workers[0].turns - before > static_cast<uint64_t>(1.8 * first));
}

TEST_CASE("urgent turns that come in a row leave others their turns, between them")
{
    Workers workers{{{BackgroundWork::kScrub}, {.work = BackgroundWork::kMove, .urgent = true}}};
    BudgetModel model;
    model.run(workers, 10 * kSecond);
    CHECK(model.turns_at_once == 1);
    CHECK(workers[1].turns == 4464);
    // 1100 without them.
    CHECK(workers[0].turns > 1000);
    CHECK(workers[0].turns <= 1100);
}

TEST_CASE("an urgent turn waits for one under way, is waited for, and costs others half its time")
{
    WorkBudget budget(10);
    budget.foreground.began(kSecond);
    REQUIRE(budget.begin_turn(BackgroundWork::kScrub, kSecond) == 0);
    CHECK(budget.begin_urgent_turn(kSecond + kMs) > 0);
    budget.end_turn(BackgroundWork::kScrub, kSecond + 2 * kMs);
    REQUIRE(budget.begin_urgent_turn(kSecond + 2 * kMs) == 0);
    CHECK(budget.turns_under_way() == 1);
    // A rest of nine times two milliseconds; then the urgent turn is waited for.
    CHECK(budget.begin_turn(BackgroundWork::kScrub, kSecond + 20 * kMs - 1) == 1);
    CHECK(budget.begin_turn(BackgroundWork::kScrub, kSecond + 30 * kMs) > 0);
    budget.end_urgent_turn(kSecond + 32 * kMs);
    CHECK(budget.begin_turn(BackgroundWork::kScrub, kSecond + 47 * kMs - 1) == 1);
    CHECK(budget.begin_turn(BackgroundWork::kScrub, kSecond + 47 * kMs) == 0);
}

TEST_CASE("an urgent turn does not wait for one that takes longer than it should")
{
    WorkBudget budget;
    budget.foreground.began(kSecond);
    REQUIRE(budget.begin_turn(BackgroundWork::kScrub, kSecond) == 0);
    CHECK(budget.begin_urgent_turn(kSecond + 250 * kMs - 1) > 0);
    CHECK(budget.begin_urgent_turn(kSecond + 250 * kMs) == 0);
}

TEST_CASE("bytes of turns: one is used up before the next, and goes on after a pause")
{
    WorkBudget budget;
    WorkTurns turns(budget, BackgroundWork::kScrub, true);
    constexpr WorkTurns::Room kRoom{.held_back = 2, .quiet = 8};
    CHECK(turns.left(kRoom) == 8);
    turns.take(5);
    CHECK(turns.left(kRoom) == 3);
    CHECK(turns.pause());
    CHECK(budget.turns_under_way() == 0);
    CHECK_FALSE(turns.pause());
    turns.go_on();
    CHECK(turns.left(kRoom) == 3);
    CHECK(budget.turns_begun() == 2);
    turns.take(4);
    CHECK(turns.left(kRoom) == 8);
    CHECK(budget.turns_begun() == 3);
    CHECK(budget.turns_under_way() == 1);
    turns.take(1);
    turns.pause();
    CHECK(turns.left(kRoom) == 8);
    CHECK(budget.turns_begun() == 4);
}

TEST_CASE("bytes of turns: one that takes too long is the last, whatever it may still take")
{
    WorkBudget budget;
    WorkTurns turns(budget, BackgroundWork::kScrub, true);
    constexpr WorkTurns::Room kRoom{.held_back = 2, .quiet = 8};
    turns.left(kRoom);
    turns.take(1);
    usleep(260'000);
    CHECK(turns.left(kRoom) == 8);
    CHECK(budget.turns_begun() == 2);
}

TEST_CASE("a turn that had nothing to do costs others no rest")
{
    WorkBudget budget;
    uint64_t now = kSecond;
    budget.foreground.began(now);
    REQUIRE(budget.begin_turn(BackgroundWork::kMove, now) == 0);
    budget.foreground.began(now += 10 * kUs);
    budget.end_turn(BackgroundWork::kMove, now += 10 * kUs);
    CHECK(budget.begin_turn(BackgroundWork::kScrub, now + kMs) == 0);
}

TEST_CASE("a request that waited before a turn does not make it longer")
{
    WorkBudget budget(10);
    uint64_t now = kSecond;
    budget.foreground.began(now);  // and is not answered
    REQUIRE(budget.begin_turn(BackgroundWork::kScrub, now) == 0);
    for (int i = 0; i < 5; ++i) {
        budget.foreground.began(now += kMs);
        now += kMs;
        budget.foreground.ended();
    }
    budget.end_turn(BackgroundWork::kScrub, now);
    budget.foreground.began(now + 89 * kMs);
    CHECK(budget.begin_turn(BackgroundWork::kScrub, now + 89 * kMs) > 0);
    CHECK(budget.begin_turn(BackgroundWork::kScrub, now + 90 * kMs) == 0);
}

TEST_CASE("rests are no longer than those after a turn of a quarter of a second")
{
    WorkBudget budget(10);
    REQUIRE(budget.begin_turn(BackgroundWork::kMove, kSecond) == 0);
    budget.end_turn(BackgroundWork::kMove, 9 * kSecond);
    const uint64_t over = 9 * kSecond + 9 * 250 * kMs;
    budget.foreground.began(over - kMs);
    CHECK(budget.begin_turn(BackgroundWork::kMove, over - kMs) > 0);
    CHECK(budget.begin_turn(BackgroundWork::kMove, over) == 0);
}

TEST_CASE("turns are smaller beside users of members that do not seek")
{
    WorkBudget budget;
    constexpr WorkTurns::Room kRoom{.held_back = 1024, .quiet = 4096};
    CHECK(WorkTurns(budget, BackgroundWork::kScrub, false).left(kRoom) == 4096);
    budget.foreground.began(monotonic_ns());
    CHECK(WorkTurns(budget, BackgroundWork::kScrub, false).left(kRoom) == 256);
    CHECK(WorkTurns(budget, BackgroundWork::kScrub, true).left(kRoom) == 1024);
}

TEST_CASE("a request that is never answered holds nobody back for ever")
{
    ForegroundLoad load;
    CHECK_FALSE(load.busy(kSecond));
    load.began(kSecond);
    CHECK(load.busy(2 * kSecond));
    CHECK_FALSE(load.busy(kSecond + ForegroundLoad::kForgottenNs));
    load.began(20 * kSecond);
    load.ended();
    CHECK(load.busy(20 * kSecond + 2 * kMs));
    CHECK(load.under_way() == 1);  // the first
}

}  // namespace cowraid
