// SPDX-License-Identifier: MIT
// Deleting inodes that have neither names nor lookup references.
#pragma once

#include "fs/names/names.h"

namespace cowraid {

// Hands the inode to the background, if it is unlinked and nobody remembers it. Never waits. The orphan
// item that unlink made keeps it findable until the work is done.
void queue_removal(Names& names, InodeNumber inode);

// The same for a truncation that an error broke off.
void queue_end_of_cut(Names& names, Inode& inode);

// Deletes data, attributes, item and orphan mark, in pieces small enough for one transaction each; does
// nothing when the inode is remembered again, and ends its truncation when it has names. What an error
// stopped that may go away is set aside in the queue. Removal thread, or the simulator's step.
Status remove_inode(Names& names, InodeNumber inode);

// Until what was queued before the call is deleted, or cannot be: waits for the removal thread, or does its
// work where there is none, also what was set aside, and says what failed first. No locks held; never on the
// removal thread.
Status finish_removals(Names& names);

// Queues every inode with an orphan mark: left over by a crash, or unlinked while open at unmount.
Status queue_orphans(Names& names);

}  // namespace cowraid
