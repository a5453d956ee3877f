// SPDX-License-Identifier: MIT
// From the open transaction to a durable generation (design 5.4), and the thread that does it.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "fs/core.h"

namespace cowraid {

// One round of the commit thread's work: commits the open transaction if anything changed. Commit thread,
// or the only thread of a manual_commit filesystem. An error has stopped the filesystem.
Status commit_now(FilesystemCore& core);
// After the last commit of a mount: superblocks say that there is nothing to be recovered.
Status commit_clean(FilesystemCore& core);
// Writes dirty data of the open transaction without committing.
Status flush_now(FilesystemCore& core);
// A commit that contains everything done before the call; waits for it. No locks held.
Status force_commit(FilesystemCore& core);
// A flush soon, or at once where no thread would do it.
void ask_for_flush(FilesystemCore& core);

// Plans groups while the free room of published ones is short of what the next commits may need. Plans are
// in the map of the next commit and take data after it.
Status plan_ahead(FilesystemCore& core);
// Plans data groups until `wanted_blocks` are free or the slots for data run out; for `taken_blocks` of them,
// which writers were told are safe, any slots. The caller publishes the map.
Status plan_for(FilesystemCore& core, uint64_t wanted_blocks, uint64_t taken_blocks);
// Closes groups with columns on members out of service, opens the others. Mount, and after a failure.
void close_degraded_groups(FilesystemCore& core);
// What was accepted before a member failed still gets its commit, in the groups there are, with what
// tolerance they have left: opens the groups of `content` that close_degraded_groups() closed.
void open_degraded_groups(FilesystemCore& core, uint32_t content);
// Recomputes what the budget may promise. `taken_blocks` of data promises have just been taken from the
// allocator.
void refresh_budget(FilesystemCore& core, uint64_t taken_blocks = 0);

}  // namespace cowraid
