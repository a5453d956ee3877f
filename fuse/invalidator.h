// SPDX-License-Identifier: MIT
// Answers requests after the kernel has dropped pages: one for direct writes, another one for seeks of what
// may be mapped and for changes that failed. Those drop large ranges, of which the kernel may have to write
// back much; no direct write waits for that.
//
// A thread of its own does that, its users in turn: the kernel waits for the locks of pages while it
// drops them, and such a page may be locked for a request that needs a serving thread, or for one that the
// kernel holds back because too many are under way in the background, as direct writes may be. So no serving
// thread waits here, and the number of direct writes is bounded below the number the kernel lets through.
// Other requests are never in the background: they are not counted.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "base/mutex.h"
#include "base/thread.h"
#include "fuse/turns.h"

namespace cowraid {

// A request that is applied. Called without locks: the first two in this order, or the third alone.
class HeldAnswer {
public:
    virtual ~HeldAnswer() = default;
    // Makes the kernel drop the pages.
    virtual void drop() = 0;
    virtual void answer() = 0;
    // Answers with an error, at once: the kernel keeps its pages, which may be older.
    virtual void refuse() = 0;
};

class Invalidator {
public:
    // Bound of direct writes between enter() and their answers; nobody else enters. Users with few of them
    // get half as many more.
    explicit Invalidator(uint32_t write_count_max) : write_count_max_(write_count_max) { }
    ~Invalidator();
    Invalidator(const Invalidator&) = delete;
    Invalidator& operator=(const Invalidator&) = delete;

    // kNoThread: there was no thread.
    Status start();
    // For a connection that is about to end. Refuses what is submitted from now on, else a program that
    // always has some requests under way would have no end. Returns when everything submitted before was
    // done; requests must be served meanwhile.
    void finish();

    // A direct write of the user begins. False: too many wait; it must be refused before it is applied.
    [[nodiscard]] bool enter(uint32_t uid);
    // It was answered.
    void leave(uint32_t uid);
    // Of a request of the user: pages must go first. From finish() on the caller refuses it.
    void submit(uint32_t uid, std::unique_ptr<HeldAnswer> answer);

private:
    // What "few" is.
    static constexpr uint32_t kFewWrites = 128;

    void run();
    std::atomic<uint32_t>& count_of(uint32_t uid) { return user_counts_[uid % user_counts_.size()]; }

    const uint32_t write_count_max_;
    std::atomic<uint32_t> write_count_{0};
    std::array<std::atomic<uint32_t>, 1024> user_counts_{};  // by user, some of whom share one
    Thread thread_;
    Mutex mutex_{LockRank::kLeaf};
    CondVar changed_;
    Turns<std::unique_ptr<HeldAnswer>> answers_ CW_GUARDED_BY(mutex_);
    bool working_ CW_GUARDED_BY(mutex_) = false;
    bool closing_ CW_GUARDED_BY(mutex_) = false;
    bool stopping_ CW_GUARDED_BY(mutex_) = false;
};

}  // namespace cowraid
