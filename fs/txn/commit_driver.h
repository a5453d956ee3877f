// SPDX-License-Identifier: MIT
// What those who wait for room can set in motion. Implemented by the committer, which stands above.
#pragma once

#include "base/status.h"
#include "fs/txn/transaction.h"

namespace cowraid {

class FsyncLog;
struct Store;

class CommitDriver {
public:
    virtual ~CommitDriver() = default;
    // One round of the commit thread's work: commits the open transaction if anything changed. Commit thread,
    // or the only thread of a manual_commit filesystem. An error has stopped the filesystem.
    virtual Status commit() = 0;
    // Writes dirty data of the open transaction without committing. Threads and errors as for commit().
    virtual Status flush() = 0;
    // Until what was unlinked before the call is deleted, or cannot be. No locks held.
    virtual Status finish_removals() = 0;
    // Null where nothing is written.
    virtual FsyncLog* records() = 0;
};

// A commit that contains everything done before the call; waits for it. No locks held.
Status force_commit(Store& store);
// A flush soon, or at once where no thread would do it.
void ask_for_flush(Store& store);
// Number of a commit of checksums after the last commit.
TransactionId between_commits(const Store& store);

}  // namespace cowraid
