// SPDX-License-Identifier: MIT
// How many threads look for requests: few while the processors are the limit, all of them while requests
// wait.
//
// The kernel wakes, for each request, the thread that has waited longest, although a thread that just
// answers would take the request a moment later without being woken. With few threads requests wait a moment
// instead, and no thread sleeps between two of them. But threads that wait for devices, locks or commits
// serve nobody: the others then have to take part, or requests that need none of that stand behind them.
// So most threads are in reserve. Once nobody looks for requests a watch decides every millisecond how many
// take part, until somebody has been looking for a while: no request stands then.
#pragma once

#include <semaphore.h>

#include <atomic>
#include <cstdint>

#include "base/mutex.h"
#include "base/thread.h"

namespace cowraid {

// The number of threads that take part. Not thread-safe.
class ThreadLimit {
public:
    // Ticks of a millisecond with somebody looking for requests, after which nobody has to watch.
    static constexpr uint32_t kQuietTicks = 100;
    // What a tick has seen.
    struct Tick {
        uint32_t taking_part;  // threads not in reserve
        uint32_t looking;  // of them, or not started yet: those that wait for a request, or would
        uint64_t milliseconds;  // since the last tick
        uint64_t taken;  // requests meanwhile
        uint64_t preempted;  // how often threads that serve had to leave their processor to another meanwhile
    };

    // 1 <= least <= most.
    ThreadLimit(uint32_t least, uint32_t most) : least_(least), most_(most), value_(least) { }
    [[nodiscard]] uint32_t value() const { return value_; }
    // Whether to watch on.
    bool tick(const Tick& tick);

private:
    void nobody_looks(const Tick& tick);

    const uint32_t least_, most_;
    uint32_t value_;
    void calm_down();

    // Of the quiet ticks so far: how many, the most threads that were at requests at a time, sums.
    struct Quiet {
        uint32_t ticks = 0;
        uint32_t busy = 0;
        uint64_t taken = 0, preempted = 0;
    } quiet_;
};

// Thread-safe. A thread that is cancelled in before_read(), or between it and after_read(), counts on: that
// is how a session ends.
class ServingThreads {
public:
    ServingThreads(uint32_t least, uint32_t most);
    ~ServingThreads();
    ServingThreads(const ServingThreads&) = delete;
    ServingThreads& operator=(const ServingThreads&) = delete;

    // Starts and ends the watch. kNoThread: there was no thread. Requires that start() runs before any
    // request is read.
    Status start();
    void finish();
    // The calling thread is about to read a request: waits for as long as it is in reserve. A point of
    // cancellation. No locks are held.
    void before_read();
    // It has read one, or got an error.
    void after_read();
    // Whether at some time in the last kQuietTicks nobody looked for requests: to poll for them is no use.
    [[nodiscard]] bool busy() const { return watched_.load(std::memory_order_relaxed); }

private:
    void stand_back();
    void set_limit(uint32_t limit);
    [[nodiscard]] uint32_t might_look() const;
    void watch_if_nobody_looks();
    void watch();
    void watch_busy();
    void count_preemptions();

    const bool has_reserve_;
    ThreadLimit policy_;  // the watch's own
    Mutex mutex_{LockRank::kLeaf};
    std::atomic<uint32_t> limit_;  // changes under the mutex, as do the next two
    std::atomic<uint32_t> taking_part_{0};
    uint32_t reserve_ CW_GUARDED_BY(mutex_) = 0;
    // POSIX semaphores: waiting for one is a point of cancellation, and libfuse ends its threads so.
    sem_t promotion_;  // one for each thread that leaves the reserve
    sem_t work_for_watch_;
    std::atomic<uint32_t> looking_{0};
    std::atomic<uint64_t> taken_{0}, preempted_{0};
    std::atomic<bool> watched_{false};
    std::atomic<bool> ending_{false};
    Thread watch_;
};

}  // namespace cowraid
