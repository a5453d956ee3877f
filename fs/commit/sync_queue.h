// SPDX-License-Identifier: MIT
// Who waits for which change to become durable: by a record of the fsync log that all who wait share, or by a
// commit where no record will do.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "fs/txn/completion.h"

namespace cowraid {

struct CollectedChanges;
struct Committer;

class SyncQueue {
public:
    // `completion` is answered when all changes up to number `change` are durable, or the filesystem stopped.
    // The calling thread may first write the log, for others too. No locks held.
    void wait_async(Committer& committer, uint64_t change, Completion* completion);
    // Commit thread: all changes up to this number are in a durable commit.
    void committed(uint64_t change);

    // All changes up to this number are in a durable commit or record.
    [[nodiscard]] uint64_t durable() const;

    // Somebody called fsync, so that commits shall make the log ready for use.
    [[nodiscard]] bool wants_log() const { return wants_log_; }
    void set_wants_log(bool wants) { wants_log_ = wants; }

    struct Counts {
        std::atomic<uint64_t> records{0};
        std::atomic<uint64_t> record_bytes{0};
        std::atomic<uint64_t> commits{0};  // calls that became commits
    };
    [[nodiscard]] const Counts& counts() const { return counts_; }

private:
    struct Waiter {
        uint64_t change;
        Completion* completion;
    };
    bool enqueue(uint64_t change, Completion* completion);
    void lead(Committer& committer);
    void do_round(Committer& committer);
    Status write_record(Committer& committer, const CollectedChanges& collected);
    void commit_instead(Committer& committer, const CollectedChanges& collected);
    std::vector<Waiter> take_waiters(uint64_t change);
    void answer(uint64_t change, Status status);

    mutable Mutex mutex_{LockRank::kLeaf};
    CondVar changed_;  // the leader left
    std::vector<Waiter> waiters_ CW_GUARDED_BY(mutex_);
    uint64_t durable_ CW_GUARDED_BY(mutex_) = 0;  // changes up to this number
    bool leading_ CW_GUARDED_BY(mutex_) = false;  // somebody does rounds
    int round_ CW_GUARDED_BY(mutex_) = 0;  // of the leader
    // The leader has served others for long enough, and who takes over from it.
    bool relief_wanted_ CW_GUARDED_BY(mutex_) = false;
    bool relief_coming_ CW_GUARDED_BY(mutex_) = false;
    std::atomic<bool> wants_log_{false};
    Counts counts_;
};

}  // namespace cowraid
