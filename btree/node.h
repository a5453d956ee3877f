// SPDX-License-Identifier: MIT
// One committed node in memory: immutable, validated, shared by reference.
#pragma once

#include <cstdint>
#include <span>

#include "base/buffer.h"
#include "base/ref.h"
#include "base/status.h"
#include "base/uuid.h"
#include "format/key.h"
#include "format/node.h"
#include "format/superblock_codec.h"

namespace cowraid {

class Node : public RefCounted<Node> {
public:
    // Validates `content` (kNodeBytes) as the node `ref` points to: checksums, magic, uuid, address,
    // generation, tree, level (when `level` >= 0), item bounds, key order, payload overlap; children have
    // valid addresses and no younger generation. A valid node has at least one item. kCorrupt names nothing;
    // the caller knows the address.
    static Result<Ref<const Node>> parse(AlignedBuffer content, const BlockRef& ref, const Uuid& volume_uuid,
                                         uint64_t tree_id, int level);

    // Not ref(): that counts references.
    [[nodiscard]] const BlockRef& block_ref() const { return ref_; }
    [[nodiscard]] uint32_t level() const { return level_; }
    [[nodiscard]] bool is_leaf() const { return level_ == 0; }
    [[nodiscard]] uint64_t tree_id() const { return tree_id_; }
    [[nodiscard]] uint32_t item_count() const { return item_count_; }
    [[nodiscard]] Key key(uint32_t index) const;
    // Leaves only. Points into the node; valid while it is referenced.
    [[nodiscard]] std::span<const std::byte> payload(uint32_t index) const;
    // Internal nodes only.
    [[nodiscard]] BlockRef child(uint32_t index) const;
    // First index whose key is >= `key`; item_count() when none.
    [[nodiscard]] uint32_t lower_bound(const Key& key) const;
    // Internal nodes: the child whose subtree would hold `key` (0 when below all).
    [[nodiscard]] uint32_t child_for(const Key& key) const;
    [[nodiscard]] std::span<const std::byte> content() const { return content_.span(); }

private:
    friend class RefCounted<Node>;
    Node(AlignedBuffer content, const BlockRef& ref);
    ~Node() = default;

    AlignedBuffer content_;
    BlockRef ref_;
    uint64_t tree_id_ = 0;
    uint32_t level_ = 0;
    uint32_t item_count_ = 0;
};

}  // namespace cowraid
