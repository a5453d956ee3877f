// SPDX-License-Identifier: MIT
// Requests that last: they take many operations (a large file is cut, a range of a fragmented one is
// cleared), or one that has to wait for a commit or for room.
//
// The thread that a request came to begins with it. When it lasts, it goes to a few threads that share all
// such requests in turn, user by user, so that serving threads stay free for others, however many there are,
// and nobody waits for all that somebody else has asked for. One of many
// operations ends early, after some of them, when the daemon ends, and when its caller was killed if the
// kernel can be told of what was done by then.
#pragma once

#include <fuse3/fuse_lowlevel.h>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "base/thread.h"
#include "fs/txn/long_change.h"
#include "fuse/turns.h"

namespace cowraid {

// One such request. Called without locks, by one thread at a time.
class LongRequest {
public:
    // A change of size goes on to its end: the kernel keeps the old size when such a call fails, and appends
    // there.
    enum class WhenKilled : uint8_t { kEnd, kGoOn };
    LongRequest(fuse_req_t request, std::unique_ptr<LongChange> change, WhenKilled when_killed)
        : request_(request), change_(std::move(change)), when_killed_(when_killed)
    {
    }
    virtual ~LongRequest() = default;
    LongRequest(const LongRequest&) = delete;
    LongRequest& operator=(const LongRequest&) = delete;

    // Answers. kInterrupted: the caller was killed; kShutdown: the daemon ends.
    virtual void finish(Status status) = 0;
    [[nodiscard]] fuse_req_t request() const { return request_; }
    [[nodiscard]] LongChange& change() const { return *change_; }
    [[nodiscard]] WhenKilled when_killed() const { return when_killed_; }

private:
    const fuse_req_t request_;
    const std::unique_ptr<LongChange> change_;
    const WhenKilled when_killed_;
};

// One operation that would have to wait where the request came in: `action` does it and answers.
template <typename Action> class WaitingRequest final : public LongRequest {
public:
    WaitingRequest(fuse_req_t request, Action action)
        : LongRequest(request, std::make_unique<Step>(std::move(action)), WhenKilled::kGoOn)
    {
    }
    void finish(Status) override { }

private:
    struct Step final : LongChange {
        explicit Step(Action wanted) : action(std::move(wanted)) { }
        Result<Progress> step() override
        {
            action();
            return Progress::kDone;
        }
        Action action;
    };
};

class LongRequests {
public:
    explicit LongRequests(size_t thread_count) : threads_(thread_count) { }
    ~LongRequests();
    LongRequests(const LongRequests&) = delete;
    LongRequests& operator=(const LongRequests&) = delete;

    // Once. kNoThread: there were not enough threads.
    Status start();
    // Returns when all that were handed over are answered, some of them early. From then on none is handed
    // over, and all end early.
    void finish();
    // For a thread that serves requests: returns when the request is answered, would wait, or after some
    // milliseconds.
    void run(std::unique_ptr<LongRequest> request);
    // Without a first try by the caller, except from finish() on: then the caller does the whole.
    void hand_over(std::unique_ptr<LongRequest> request);

private:
    bool run_slice(LongRequest& request);
    void work();

    std::vector<Thread> threads_;
    Mutex mutex_{LockRank::kLeaf};
    CondVar changed_;
    Turns<std::unique_ptr<LongRequest>> requests_ CW_GUARDED_BY(mutex_);
    int working_ CW_GUARDED_BY(mutex_) = 0;  // threads that have one in hand
    std::atomic<bool> ending_{true};
};

}  // namespace cowraid
