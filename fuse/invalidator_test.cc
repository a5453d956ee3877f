// SPDX-License-Identifier: MIT
#include "fuse/invalidator.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/event.h"

namespace cowraid {

namespace {

// What happened, in order.
class Story {
public:
    void add(const std::string& line)
    {
        MutexLock lock(mutex_);
        lines_.push_back(line);
    }
    std::vector<std::string> lines()
    {
        MutexLock lock(mutex_);
        return lines_;
    }

private:
    Mutex mutex_{LockRank::kLeaf};
    std::vector<std::string> lines_ CW_GUARDED_BY(mutex_);
};

using Lines = std::vector<std::string>;

// Tells the story of itself; waits while it drops, if it has a gate.
class Told final : public HeldAnswer {
public:
    Told(Story& story, std::string name, Event* gate = nullptr)
        : story_(story), name_(std::move(name)), gate_(gate), ticket_(gate == nullptr ? 0 : gate->ticket())
    {
    }
    void drop() override
    {
        if (gate_ != nullptr)
            gate_->wait_past(ticket_);
        story_.add("drop " + name_);
    }
    void answer() override { story_.add("answer " + name_); }
    void refuse() override { story_.add("refuse " + name_); }

private:
    Story& story_;
    const std::string name_;
    Event* const gate_;
    const uint64_t ticket_;
};

// A program that keeps some direct writes under way: the next one comes as soon as one is answered.
class Endless final : public HeldAnswer {
public:
    static constexpr int kMost = 100000;
    struct Counts {
        std::atomic<int> dropped{0}, answered{0}, refused{0};
    };

    Endless(Invalidator& invalidator, Counts& counts) : invalidator_(invalidator), counts_(counts) { }
    void drop() override
    {
        ++counts_.dropped;
        usleep(50);
    }
    void answer() override
    {
        if (++counts_.answered < kMost)
            invalidator_.submit(0, std::make_unique<Endless>(invalidator_, counts_));
    }
    void refuse() override { ++counts_.refused; }

private:
    Invalidator& invalidator_;
    Counts& counts_;
};

}  // namespace

TEST_CASE("invalidator: drops before it answers, in order")
{
    Invalidator invalidator(10);
    REQUIRE(invalidator.start().ok());
    Story story;
    for (const char* const name : {"a", "b", "c"}) {
        invalidator.submit(0, std::make_unique<Told>(story, name));
    }
    invalidator.finish();
    CHECK(story.lines() == Lines{"drop a", "answer a", "drop b", "answer b", "drop c", "answer c"});
    // The connection ends.
    invalidator.submit(0, std::make_unique<Told>(story, "d"));
    invalidator.finish();
    CHECK(story.lines().size() == 7);
    CHECK(story.lines().back() == "refuse d");
}

TEST_CASE("invalidator: ends under a load that does not, and answers nothing as done without dropping")
{
    constexpr int kAtOnce = 8;
    Invalidator invalidator(10);
    Endless::Counts counts;
    for (int i = 0; i < kAtOnce; ++i)
        invalidator.submit(0, std::make_unique<Endless>(invalidator, counts));
    REQUIRE(invalidator.start().ok());
    invalidator.finish();
    CHECK(counts.answered < Endless::kMost);
    CHECK(counts.answered == counts.dropped);
    CHECK(counts.answered >= kAtOnce);
    CHECK(counts.refused == kAtOnce);
}

TEST_CASE("invalidator: users take turns")
{
    Invalidator invalidator(10);
    Story story;
    for (const char* const name : {"a", "b", "c"})
        invalidator.submit(1000, std::make_unique<Told>(story, name));
    invalidator.submit(1001, std::make_unique<Told>(story, "d"));
    REQUIRE(invalidator.start().ok());
    invalidator.finish();
    CHECK(story.lines() ==
          Lines{"drop a", "answer a", "drop d", "answer d", "drop b", "answer b", "drop c", "answer c"});
}

TEST_CASE("invalidator: refuses direct writes beyond its bound, and takes others again after that")
{
    constexpr uint32_t kUser = 1000;
    constexpr uint32_t kMax = 300;  // more than "few"
    Invalidator invalidator(kMax);
    for (uint32_t i = 0; i < kMax; ++i)
        REQUIRE(invalidator.enter(kUser));
    CHECK_FALSE(invalidator.enter(kUser));
    invalidator.leave(kUser);
    CHECK(invalidator.enter(kUser));
    CHECK_FALSE(invalidator.enter(kUser));
}

TEST_CASE("invalidator: a user's direct writes do not keep away the few of another one")
{
    constexpr uint32_t kMax = 300;
    Invalidator invalidator(kMax);
    for (uint32_t i = 0; i < kMax; ++i)
        REQUIRE(invalidator.enter(1000));
    uint32_t taken = 0;
    while (invalidator.enter(1001))
        ++taken;
    CHECK(taken == 128);
    // The kernel lets twice the bound through.
    while (invalidator.enter(1002))
        ++taken;
    CHECK(taken == kMax / 2);
    CHECK_FALSE(invalidator.enter(1003));
    for (uint32_t i = 0; i < kMax; ++i)
        invalidator.leave(1000);
    CHECK(invalidator.enter(1000));
    CHECK(invalidator.enter(1003));
}

}  // namespace cowraid
