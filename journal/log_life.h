// SPDX-License-Identifier: MIT
// When what a log says is over.
#pragma once

#include "format/superblock_codec.h"

namespace cowraid {

// Whether an entry that was written under `epoch`, for a commit of `generation` or later, still counts for
// who finds `superblock`. It is dead once a commit with trees of its generation is durable. Superblocks
// are also written without new trees, with a generation of their own, and a degraded mount stamps its
// epoch before its first commit: neither supersedes an entry, so that the generation of the trees counts,
// and every epoch back to the one they were committed under.
inline bool log_entry_lives(const Superblock& superblock, uint64_t epoch, Generation generation)
{
    if (generation <= superblock.root.generation)
        return false;
    for (const EpochRecord& record : superblock.epochs) {
        if (record.epoch == epoch)
            return true;
        if (record.generation <= superblock.root.generation)
            return false;
    }
    return false;
}

}  // namespace cowraid
