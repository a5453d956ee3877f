// SPDX-License-Identifier: MIT
#include "fuse/long_requests.h"

#include <utility>

#include "base/clock.h"
#include "fs/txn/no_wait.h"
#include "fuse/caller_status.h"

namespace cowraid {

namespace {

constexpr uint64_t kSliceNs = 10'000'000;

}  // namespace

LongRequests::~LongRequests()
{
    finish();
    for (Thread& thread : threads_)
        thread.join();
}

Status LongRequests::start()
{
    ending_ = false;
    for (Thread& thread : threads_)
        CW_TRY(thread.start([this] { work(); }));
    return {};
}

void LongRequests::finish()
{
    MutexLock lock(mutex_);
    ending_ = true;
    changed_.notify_all();
    while (!requests_.empty() || working_ > 0)
        changed_.wait(mutex_);
}

// Whether it was answered.
bool LongRequests::run_slice(LongRequest& request)
{
    const uint64_t end_ns = monotonic_ns() + kSliceNs;
    while (true) {
        const Result<Progress> progress = request.change().step();
        Status outcome;
        if (progress.err() == Err::kWouldWait)
            return false;
        if (!progress.ok() || *progress == Progress::kDone)
            outcome = progress.status();
        else if (ending_)
            outcome = Err::kShutdown;
        else if (monotonic_ns() < end_ns)
            continue;
        else if (request.when_killed() == LongRequest::WhenKilled::kEnd &&
                 caller_was_killed(request.request()))
            outcome = Err::kInterrupted;
        else
            return false;
        request.finish(outcome);
        return true;
    }
}

void LongRequests::run(std::unique_ptr<LongRequest> request)
{
    {
        const NoWait scope;
        if (run_slice(*request))
            return;
    }
    hand_over(std::move(request));
}

void LongRequests::hand_over(std::unique_ptr<LongRequest> request)
{
    const uid_t user = fuse_req_ctx(request->request())->uid;
    {
        MutexLock lock(mutex_);
        if (!ending_) {
            requests_.push(user, std::move(request));
            changed_.notify_one();
            return;
        }
    }
    while (!run_slice(*request)) { }
}

void LongRequests::work()
{
    while (true) {
        std::unique_ptr<LongRequest> request;
        {
            MutexLock lock(mutex_);
            while (requests_.empty() && !ending_)
                changed_.wait(mutex_);
            if (requests_.empty())
                return;
            request = requests_.take();
            ++working_;
        }
        if (!run_slice(*request))
            hand_over(std::move(request));
        request.reset();  // before finish() may return: the filesystem goes then
        MutexLock lock(mutex_);
        --working_;
        changed_.notify_all();
    }
}

}  // namespace cowraid
