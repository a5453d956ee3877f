// SPDX-License-Identifier: MIT
// Changing a tree: sorted batches of updates are merged into new nodes, which replace the path above them.
// Committed nodes are never touched. Used by the commit thread alone.
//
//   apply() (any number of times) -> assign() until nothing is unassigned -> seal() -> the caller writes
//
// A node keeps the address it was assigned even when a later apply() of the same commit changes it again,
// so that the loop "recording an allocation changes a tree, which allocates" ends (design section 5.5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/ref.h"
#include "base/status.h"
#include "btree/node_cache.h"
#include "btree/tree.h"
#include "format/key.h"

namespace cowraid {

struct TreeUpdate {
    enum class Kind : uint8_t {
        kPut,  // insert or replace
        kErase,  // remove; nothing when absent
        kCombine,  // Combiner makes the new payload from the old one and `value`
        kMove,  // the leaf that would hold the key, and all above it, get new places; items stay
    };
    Key key;
    Kind kind = Kind::kPut;
    std::span<const std::byte> value;  // at most kMaxItemBytes; the caller's until apply() returns
};

// Merges partial updates of wide items (checksum windows) without a read by the caller.
class Combiner {
public:
    virtual ~Combiner() = default;
    // `old_value` is empty when there is no item. Leaving `out` empty erases the item.
    virtual Status combine(const Key& key, std::span<const std::byte> old_value,
                           std::span<const std::byte> update, std::vector<std::byte>& out) = 0;
};

class CowTree {
public:
    // Starts from a committed tree. `cache` outlives the object.
    CowTree(NodeCache& cache, const TreeRoot& base);
    ~CowTree();
    CowTree(const CowTree&) = delete;
    CowTree& operator=(const CowTree&) = delete;

    // Merges updates, sorted by key without duplicates. An update that leaves its item as it is (an erase of
    // nothing, the same payload again) changes nothing, unless it is kMove. On an error the object is
    // unusable and must be dropped: kIo, kTooManyFaults, kCorrupt (a node that cannot be read or contradicts
    // its parent), kTooBig (more than kMaxItemBytes out of the combiner), the combiner's own. `combiner` may
    // be null when no update is kCombine.
    Status apply(std::span<const TreeUpdate> updates, Combiner* combiner);

    [[nodiscard]] bool changed() const;
    // Nodes of this commit without an address yet.
    [[nodiscard]] size_t unassigned_count() const;
    // Gives the unassigned nodes addresses, leaves first and in key order, from the front of `addresses`,
    // which must hold at least unassigned_count() entries. Returns how many were taken.
    size_t assign(std::span<const VolumeAddress> addresses);
    // Committed nodes that are no longer part of the tree, since the last call.
    std::vector<BlockRef> take_freed();
    // Addresses assigned in this commit whose node vanished again, since the last call.
    std::vector<VolumeAddress> take_released();

    // Freezes the tree: stamps addresses, generation and checksums bottom-up. Requires
    // unassigned_count() == 0 and a generation above the base's (the caller has refused a base root that
    // claims a generation beyond the superblock's). `nodes` receives every new node, children before
    // parents; the caller writes and caches them. Afterwards only take_freed() and take_released() are left.
    // kCorrupt: a committed pointer names an address that was free for a new node; nothing may be written.
    Result<TreeRoot> seal(Generation generation, const Uuid& volume_uuid,
                          std::vector<Ref<const Node>>& nodes);

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace cowraid
