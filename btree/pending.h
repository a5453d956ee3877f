// SPDX-License-Identifier: MIT
// Nodes of the commit being built, in memory and mutable until CowTree::seal().
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/buffer.h"
#include "base/units.h"
#include "btree/node_image.h"
#include "format/key.h"
#include "format/superblock_codec.h"

namespace cowraid {

struct PendingNode;

// An edge of the tree: to a committed node or to a pending one.
struct TreeChild {
    Key key;  // the first key below the child, or a smaller one
    BlockRef ref;  // of a committed node; unused when pending
    std::unique_ptr<PendingNode> pending;
};

struct PendingNode {
    uint32_t level = 0;
    VolumeAddress address;  // not valid until assigned
    // It shrank below a quarter and should join a neighbour as soon as it has one.
    bool wants_merge = false;
    // It is the left one of two halves, which would share a neighbour's room.
    bool wants_share = false;
    AlignedBuffer image;  // leaves: everything but the header is final
    std::vector<TreeChild> children;  // internal nodes

    [[nodiscard]] bool is_leaf() const { return level == 0; }
    [[nodiscard]] const Key& first_child_key() const { return children.front().key; }
};

// Room that the items of a leaf image take.
inline uint32_t leaf_used_bytes(const std::byte* image)
{
    return leaf_run_bytes(image, 0, node_header(image).item_count);
}

}  // namespace cowraid
