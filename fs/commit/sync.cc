// SPDX-License-Identifier: MIT
// Durability on demand.
#include "fs/commit/committer.h"
#include "fs/txn/blocking_completion.h"

namespace cowraid {

namespace {

// Read-only, and what came before that is in a commit. What a replay brought back is in the log.
bool all_durable(const Committer& committer)
{
    return committer.store.service.read_only() &&
           committer.store.changes.newest() <= committer.syncs.durable();
}

}  // namespace

void Committer::sync_async(Completion* completion)
{
    if (all_durable(*this)) {
        completion->done({});
        return;
    }
    if (store.options.manual_commit) {
        completion->done(commit());
        return;
    }
    const View view = store.timeline.view();
    if (view.open->dirty)
        store.commits.wait_async(view.open->id, completion);
    else if (view.committing)
        store.commits.wait_async(view.committing->id, completion);
    else
        completion->done(store.service.stopped() ? Status(Err::kShutdown) : Status());
}

Status Committer::sync()
{
    BlockingCompletion blocking;
    sync_async(&blocking);
    return blocking.wait();
}

void Committer::fsync_async(InodeNumber number, SyncWhat what, Completion* completion)
{
    uint64_t change = store.changes.newest();
    if (what == SyncWhat::kData) {
        // One that cannot be had is treated like one that has changed.
        if (const Result<Ref<Inode>> inode = files.inodes.get(number); inode.ok()) {
            MutexLock lock((*inode)->mutex);
            change = (*inode)->data_change;
        }
    }
    syncs.wait_async(*this, change, completion);
}

Status Committer::fsync(InodeNumber number, SyncWhat what)
{
    BlockingCompletion blocking;
    fsync_async(number, what, &blocking);
    return blocking.wait();
}

}  // namespace cowraid
