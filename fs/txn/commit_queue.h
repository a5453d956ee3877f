// SPDX-License-Identifier: MIT
// Who waits for which commit, and what woke the commit thread.
#pragma once

#include <cstdint>
#include <vector>

#include "alloc/allocator.h"
#include "base/mutex.h"
#include "base/status.h"
#include "fs/txn/completion.h"

namespace cowraid {

class CommitQueue {
public:
    // `completion` is answered when the transaction `id` is committed, or when nobody will commit it.
    void wait_async(TransactionId id, Completion* completion);
    // As wait_async(), blocking. Must not be called by the commit thread or with locks held.
    Status wait(TransactionId id);
    // Asks for a commit that nobody waits for.
    void request_commit();
    // Asks for a flush of dirty data without a commit.
    void request_flush();
    void request_stop();
    // Nobody commits from now on: who waits, and who comes, gets `status`, until resume().
    void suspend(Status status);
    void resume();

    struct Work {
        bool commit = false;
        bool flush = false;
        bool stop = false;

        [[nodiscard]] bool any() const { return commit || flush || stop; }
    };
    // Commit thread: sleeps until there is work or `milliseconds` went by.
    Work sleep(uint64_t milliseconds);
    // Commit thread: `id` is being committed, so that nobody has to ask for it.
    void begun(TransactionId id);
    // Commit thread: transactions up to `id` are durable.
    void finished(TransactionId id);
    // Commit thread: the filesystem has stopped, and `status` says why. Who waits, and who comes, gets that,
    // but kShutdown for kNoSpace.
    void failed(Status status);

private:
    struct Waiter {
        TransactionId id;
        Completion* completion;
    };
    // Answers those whose transaction is one of up to `id`.
    void answer(TransactionId id, Status status);

    Mutex mutex_{LockRank::kCommitQueue};
    CondVar wake_;
    std::vector<Waiter> waiters_ CW_GUARDED_BY(mutex_);
    Work requested_ CW_GUARDED_BY(mutex_);
    TransactionId begun_ CW_GUARDED_BY(mutex_);
    TransactionId finished_ CW_GUARDED_BY(mutex_);
    Status failure_ CW_GUARDED_BY(mutex_);
    Status suspended_ CW_GUARDED_BY(mutex_);
};

}  // namespace cowraid
