// SPDX-License-Identifier: MIT
#include "fuse/invalidator.h"

#include <doctest/doctest.h>

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

private:
    Story& story_;
    const std::string name_;
    Event* const gate_;
    const uint64_t ticket_;
};

}  // namespace

TEST_CASE("invalidator: drops before it answers, in order")
{
    Invalidator invalidator(10);
    invalidator.start();
    Story story;
    for (const char* const name : {"a", "b", "c"}) {
        REQUIRE(invalidator.enter());
        invalidator.submit(std::make_unique<Told>(story, name));
    }
    invalidator.finish();
    CHECK(story.lines() == Lines{"drop a", "answer a", "drop b", "answer b", "drop c", "answer c"});
    // The connection ends: answers go out, nothing is dropped.
    REQUIRE(invalidator.enter());
    invalidator.submit(std::make_unique<Told>(story, "d"));
    invalidator.finish();
    CHECK(story.lines().size() == 7);
    CHECK(story.lines().back() == "answer d");
}

TEST_CASE("invalidator: refuses beyond its bound, and serves again after that")
{
    Invalidator invalidator(3);
    invalidator.start();
    Event gate;
    Story story;
    REQUIRE(invalidator.enter());
    invalidator.submit(std::make_unique<Told>(story, "a", &gate));
    REQUIRE(invalidator.enter());
    invalidator.submit(std::make_unique<Told>(story, "b"));
    REQUIRE(invalidator.enter());
    CHECK_FALSE(invalidator.enter());
    invalidator.leave();
    CHECK(invalidator.enter());
    CHECK_FALSE(invalidator.enter());
    invalidator.leave();
    CHECK(story.lines().empty());
    gate.announce();
    invalidator.finish();
    CHECK(story.lines().size() == 4);
    for (int i = 0; i < 3; ++i)
        CHECK(invalidator.enter());
    CHECK_FALSE(invalidator.enter());
}

}  // namespace cowraid
