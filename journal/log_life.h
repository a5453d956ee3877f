// SPDX-License-Identifier: MIT
// When what a log says is over.
#pragma once

#include "format/superblock_codec.h"

namespace cowraid {

// No write-intent log counts further: a larger sequence is forged.
inline constexpr uint64_t kMaxIntentSequence = UINT64_MAX / 2;

// Whether an entry that was written under `epoch`, for a commit of `generation` or later, still counts for
// who finds `superblock`. It is dead once a commit with trees of its generation is durable: superblocks
// written without new trees supersede nothing. The epoch is the logs' own, which stays while they may hold
// entries, however many degraded mounts stamp theirs and die before their first commit.
inline bool log_entry_lives(const Superblock& superblock, uint64_t epoch, Generation generation)
{
    return epoch == superblock.log_epoch && generation > superblock.root.generation;
}

}  // namespace cowraid
