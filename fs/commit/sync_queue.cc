// SPDX-License-Identifier: MIT
#include "fs/commit/sync_queue.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "fs/commit/committer.h"
#include "fs/commit/fsync_collect.h"
#include "fs/txn/group_planning.h"
#include "fs/volume/commit_mutant.h"

namespace cowraid {

namespace {

// A leader serves whoever comes while it works. After this many rounds the next that comes takes over.
constexpr int kRoundsOfLeader = 32;

}  // namespace

// False: there is nothing to do for the caller. True: it leads.
bool SyncQueue::enqueue(uint64_t change, Completion* completion)
{
    {
        MutexLock lock(mutex_);
        if (durable_ < change) {
            waiters_.push_back({change, completion});
            if ((leading_ || relief_coming_) && !relief_wanted_) {
                CW_ASSERT(relief_coming_ || round_ < kRoundsOfLeader);
                return false;
            }
            CW_ASSERT(!relief_coming_);
            relief_wanted_ = false;
            relief_coming_ = true;
            while (leading_)
                changed_.wait(mutex_);
            relief_coming_ = false;
            leading_ = true;
            round_ = 0;
            return true;
        }
    }
    completion->done({});
    return false;
}

void SyncQueue::wait_async(Committer& committer, uint64_t change, Completion* completion)
{
    if (enqueue(change, completion))
        lead(committer);
}

void SyncQueue::lead(Committer& committer)
{
    for (int round = 0;; ++round) {
        {
            MutexLock lock(mutex_);
            if (waiters_.empty() || relief_coming_) {
                leading_ = false;
                relief_wanted_ = false;
                changed_.notify_all();
                return;
            }
            round_ = round;
            relief_wanted_ = round_ >= kRoundsOfLeader;
        }
        do_round(committer);
    }
}

void SyncQueue::do_round(Committer& committer)
{
    using Kind = CollectedChanges::Kind;
    if (committer.store.service.stopped()) {
        answer(UINT64_MAX, Err::kShutdown);
        return;
    }
    const CollectedChanges collected = collect_changes(committer);
    switch (collected.kind) {
    case Kind::kNothing:
        answer(0, {});
        return;
    case Kind::kWait: {
        const Status status = committer.store.commits.wait(collected.transaction->id);
        answer(status.ok() ? 0 : UINT64_MAX, status);
        return;
    }
    case Kind::kRecord:
        if (write_record(committer, collected).ok()) {
            committed(collected.change);
            answer(collected.change, {});
            return;
        }
        // Part of the transaction is neither in the log nor tracked any more.
        collected.transaction->loggable = false;
        break;
    case Kind::kCommit:
        break;
    }
    commit_instead(committer, collected);
}

Status SyncQueue::write_record(Committer& committer, const CollectedChanges& collected)
{
    if (is_mutant(CommitMutant::kFsyncUnlogged))
        return {};
    CW_TRY(committer.fsync_log->append(collected.record,
                                       committer.store.commit_number(collected.transaction->id),
                                       committer.store.volume.log_epoch()));
    counts_.records.fetch_add(1);
    counts_.record_bytes.fetch_add(collected.record.size());
    return {};
}

void SyncQueue::commit_instead(Committer& committer, const CollectedChanges& collected)
{
    wants_log_ = true;
    collected.transaction->dirty = true;
    const std::vector<Waiter> waiters = take_waiters(collected.change);
    counts_.commits.fetch_add(waiters.size());
    const Status status = committer.store.options.manual_commit ? committer.commit() : Status();
    for (const Waiter& waiter : waiters) {
        if (committer.store.options.manual_commit)
            waiter.completion->done(status);
        else
            committer.store.commits.wait_async(collected.transaction->id, waiter.completion);
    }
}

std::vector<SyncQueue::Waiter> SyncQueue::take_waiters(uint64_t change)
{
    MutexLock lock(mutex_);
    const auto at = std::stable_partition(waiters_.begin(), waiters_.end(),
                                          [=](const Waiter& waiter) { return waiter.change > change; });
    std::vector<Waiter> taken(at, waiters_.end());
    waiters_.erase(at, waiters_.end());
    return taken;
}

void SyncQueue::answer(uint64_t change, Status status)
{
    if (status.ok()) {
        MutexLock lock(mutex_);
        change = std::max(change, durable_);
    }
    for (const Waiter& waiter : take_waiters(change))
        waiter.completion->done(status);
}

uint64_t SyncQueue::durable() const
{
    MutexLock lock(mutex_);
    return durable_;
}

void SyncQueue::committed(uint64_t change)
{
    MutexLock lock(mutex_);
    durable_ = std::max(durable_, change);
}

}  // namespace cowraid
