// SPDX-License-Identifier: MIT
// One inode: what its items were, and whether they agree with what the inode says.
#pragma once

#include "fs/check/check_extents.h"
#include "fs/check/check_passes.h"
#include "fs/files/inode.h"

namespace cowraid {

// Filled while the items of an inode pass by.
struct GatheredInode {
    uint64_t number = 0;
    bool torn = false;  // some of its items may be in a node that cannot be read
    bool has_item = false;
    bool readable = false;  // `attributes` are set
    InodeAttributes attributes;
    uint64_t name_count = 0;  // link items
    uint64_t parent = 0;  // of the last one
    uint64_t sequence_end = 0;  // one above the greatest link sequence
    uint64_t entry_count = 0;
    uint64_t subdirectory_count = 0;
    uint64_t entry_weight = 0;  // what a directory counts as its size
    uint64_t target_count = 0;
    uint64_t target_bytes = 0;
    bool orphan = false;  // has an orphan mark
    ExtentSums extents;
};

// All items were seen.
void examine_inode(CheckContext& context, const GatheredInode& inode);

}  // namespace cowraid
