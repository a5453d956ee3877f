// SPDX-License-Identifier: MIT
// Committed nodes by address, within a memory budget.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/mutex.h"
#include "base/ref.h"
#include "base/status.h"
#include "base/uuid.h"
#include "btree/node.h"

namespace cowraid {

// The seam to the array: reads and heals one node.
class NodeReader {
public:
    virtual ~NodeReader() = default;
    // Fills `out`, kNodeBytes, with content whose checksums are those of `ref`; it may be another buffer
    // afterwards. `tree_id`: the tree it is read for. Thread-safe.
    virtual Status read_node(const BlockRef& ref, uint64_t tree_id, AlignedBuffer& out) = 0;
};

class NodeCache {
public:
    // `reader` outlives the cache. The budget counts unpinned and pinned nodes; pinned ones may exceed it.
    // Every function is thread-safe.
    NodeCache(NodeReader& reader, const Uuid& volume_uuid, uint64_t budget_bytes);
    ~NodeCache();
    NodeCache(const NodeCache&) = delete;
    NodeCache& operator=(const NodeCache&) = delete;

    // The node, from memory or read and validated. `level` -1: any. Concurrent misses of one address read
    // once. No lock is held while reading. A node of the same address but another generation or checksum
    // is never returned. kCorrupt, kTooManyFaults, kIo.
    Result<Ref<const Node>> get(const BlockRef& ref, uint64_t tree_id, int level);
    // Adds a node just written.
    void insert(Ref<const Node> node);
    // Forgets an address about to be reused. Holders of the node keep it.
    void drop(VolumeAddress address);
    void set_budget(uint64_t bytes);
    // Drops everything not pinned.
    void clear();

    // `misses` counts calls that had to read; one that waited for another's read is a hit.
    struct Statistics {
        uint64_t hits, misses, bytes;
    };
    [[nodiscard]] Statistics statistics() const;

private:
    struct Shard;
    Shard& shard_of(VolumeAddress address) const;
    Result<Ref<const Node>> read_and_parse(const BlockRef& ref, uint64_t tree_id, int level);
    void shrink_to_budget(uint64_t step_limit);

    NodeReader& reader_;
    Uuid volume_uuid_;
    std::atomic<uint64_t> budget_bytes_;
    std::atomic<uint64_t> node_count_{0};
    std::atomic<uint32_t> next_shard_{0};  // whose turn it is to give up a node
    std::unique_ptr<Shard[]> shards_;
};

}  // namespace cowraid
