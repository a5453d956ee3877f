// SPDX-License-Identifier: MIT
// Reading a committed tree. Its nodes never change, so no lock is needed; the caller's snapshot pin keeps
// their addresses from being reused.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "btree/key_range.h"
#include "btree/node_cache.h"
#include "format/key.h"

namespace cowraid {

// The root of one committed tree. root.address 0: an empty tree.
struct TreeRoot {
    uint64_t tree_id = 0;
    BlockRef root;
};

// Copies the payload of `key` to `out`; kNotFound when there is none.
// kCorrupt when a node contradicts its parent.
Status tree_lookup(NodeCache& cache, const TreeRoot& tree, const Key& key, std::vector<std::byte>& out);

// Walks items in key order. One thread at a time. A node that contradicts its parent (level, key range) is
// kCorrupt; after an error the cursor is invalid.
class TreeCursor {
public:
    TreeCursor(NodeCache& cache, const TreeRoot& tree) : cache_(cache), tree_(tree) { }

    // Stands on the first item with key >= `key`; invalid when there is none.
    Status seek(const Key& key);
    // Stands on the last item with key <= `key`; invalid when there is none.
    Status seek_before(const Key& key);
    // Require valid(). Beyond the last (first) item the cursor becomes invalid.
    Status next();
    Status prev();
    [[nodiscard]] bool valid() const { return !path_.empty(); }
    // Requires valid(). The payload lives until the cursor moves.
    [[nodiscard]] Key key() const;
    [[nodiscard]] std::span<const std::byte> payload() const;

private:
    struct Step {
        Ref<const Node> node;
        uint32_t index;
        KeyRange range;  // what the node may hold
    };
    enum class Edge : uint8_t { kFirst, kKey, kLast };
    Status start(const Key& key);
    Status descend(const Key& key, Edge edge);
    Status seek_path(const Key& key);
    Status seek_before_path(const Key& key);
    Status step_forward();
    Status step_back();
    Status settle(Status status);

    NodeCache& cache_;
    TreeRoot tree_;
    std::vector<Step> path_;  // root first, to a leaf
};

}  // namespace cowraid
