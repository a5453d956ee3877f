// SPDX-License-Identifier: MIT
// Answers direct writes whose pages the kernel must drop first, and clearings of a range that failed.
//
// A thread of its own does both, in the order of arrival: the kernel waits for the locks of pages while it
// drops them, and such a page may be locked for a request that needs a serving thread, or for one that the
// kernel holds back because too many are under way in the background, as direct writes may be. So no serving
// thread waits here, and the number of writes is bounded below the number the kernel lets through.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>

#include "base/mutex.h"

namespace cowraid {

// A request that is applied. Called without locks, in this order.
class HeldAnswer {
public:
    virtual ~HeldAnswer() = default;
    // Makes the kernel drop the pages.
    virtual void drop() = 0;
    virtual void answer() = 0;
};

class Invalidator {
public:
    // Bound of writes between enter() and their answers.
    explicit Invalidator(uint32_t write_count_max) : write_count_max_(write_count_max) { }
    ~Invalidator();
    Invalidator(const Invalidator&) = delete;
    Invalidator& operator=(const Invalidator&) = delete;

    void start();
    // Returns when everything submitted was done; requests must be served meanwhile. From then on nothing is
    // dropped any more, for a connection that is about to end.
    void finish();

    // A direct write or a clearing begins. False: too many wait; it must be refused before it is applied.
    [[nodiscard]] bool enter();
    // The same for a change that was not refused before, and has failed.
    void enter_anyway() { write_count_.fetch_add(1, std::memory_order_relaxed); }
    // It was answered, by whom it came to.
    void leave() { write_count_.fetch_sub(1, std::memory_order_relaxed); }
    // Its pages must go first. Counts until it is answered.
    void submit(std::unique_ptr<HeldAnswer> write);

private:
    void run();

    const uint32_t write_count_max_;
    std::atomic<uint32_t> write_count_{0};
    std::thread thread_;
    Mutex mutex_{LockRank::kLeaf};
    CondVar changed_;
    std::deque<std::unique_ptr<HeldAnswer>> writes_ CW_GUARDED_BY(mutex_);
    bool working_ CW_GUARDED_BY(mutex_) = false;
    bool finished_ CW_GUARDED_BY(mutex_) = false;
    bool stopping_ CW_GUARDED_BY(mutex_) = false;
};

}  // namespace cowraid
