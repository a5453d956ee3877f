// SPDX-License-Identifier: MIT
// Deleting inodes that have neither names nor lookup references.
#pragma once

#include "fs/core.h"

namespace cowraid {

// Hands the inode to the background, if it is unlinked and nobody remembers it. Never waits. The orphan
// item that unlink made keeps it findable until the work is done.
void queue_removal(FilesystemCore& core, InodeNumber inode);

}  // namespace cowraid
