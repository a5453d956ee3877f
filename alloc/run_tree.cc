// SPDX-License-Identifier: MIT
#include "alloc/run_tree.h"

#include <algorithm>
#include <bit>

#include "base/assert.h"
#include "base/units.h"

namespace cowraid {

RunTree::RunTree(uint64_t size)
    : size_(size),
      leaf_count_(std::bit_ceil(divide_up(size, kLeafBits))),
      free_count_(0),
      free_(leaf_count_ * kLeafBits),
      nodes_(2 * leaf_count_)
{
    CW_ASSERT(size > 0);
    set_free(0, size);
}

void RunTree::set_free(uint64_t first, uint64_t count)
{
    CW_DEBUG_ASSERT(free_.none(first, count));
    free_.set(first, count);
    free_count_ += count;
    refresh(first, count);
}

void RunTree::set_used(uint64_t first, uint64_t count)
{
    CW_DEBUG_ASSERT(free_.all(first, count));
    free_.clear(first, count);
    free_count_ -= count;
    refresh(first, count);
}

Bits256 RunTree::leaf_bits(uint64_t leaf) const
{
    Bits256 bits;
    for (uint32_t word = 0; word < bits.words.size(); ++word)
        bits.words[word] = free_.bits(leaf * kLeafBits + word * 64, 64);
    return bits;
}

RunTree::Node RunTree::leaf_node(uint64_t leaf) const
{
    const Bits256 bits = leaf_bits(leaf);
    Node node;
    node.prefix = bits.next_clear(0, kLeafBits);
    node.longest = node.prefix;
    uint32_t at = bits.next_set(static_cast<uint32_t>(node.prefix), kLeafBits);
    node.suffix = node.prefix == kLeafBits ? kLeafBits : 0;
    while (at < kLeafBits) {
        const uint32_t end = bits.next_clear(at, kLeafBits);
        node.longest = std::max<uint64_t>(node.longest, end - at);
        if (end == kLeafBits)
            node.suffix = end - at;
        at = bits.next_set(end, kLeafBits);
    }
    return node;
}

void RunTree::refresh(uint64_t first, uint64_t count)
{
    if (count == 0)
        return;
    uint64_t low = leaf_count_ + first / kLeafBits;
    uint64_t high = leaf_count_ + (first + count - 1) / kLeafBits;
    for (uint64_t node = low; node <= high; ++node)
        nodes_[node] = leaf_node(node - leaf_count_);
    for (uint64_t half = kLeafBits; low > 1; half *= 2) {
        low /= 2;
        high /= 2;
        for (uint64_t node = low; node <= high; ++node) {
            const Node& left = nodes_[2 * node];
            const Node& right = nodes_[2 * node + 1];
            nodes_[node].prefix = left.prefix == half ? half + right.prefix : left.prefix;
            nodes_[node].suffix = right.suffix == half ? half + left.suffix : right.suffix;
            nodes_[node].longest = std::max({left.longest, right.longest, left.suffix + right.prefix});
        }
    }
}

uint64_t RunTree::find(uint64_t count) const
{
    CW_ASSERT(count > 0 && count <= longest());
    uint64_t node = 1;
    uint64_t base = 0;
    uint64_t half = leaf_count_ * kLeafBits / 2;
    for (; node < leaf_count_; half /= 2) {
        const Node& left = nodes_[2 * node];
        if (left.longest >= count) {
            node = 2 * node;
            continue;
        }
        if (left.suffix + nodes_[2 * node + 1].prefix >= count)
            return base + half - left.suffix;
        node = 2 * node + 1;
        base += half;
    }
    const Bits256 bits = leaf_bits(node - leaf_count_);
    for (uint32_t at = bits.next_set(0, kLeafBits); at < kLeafBits;) {
        const uint32_t end = bits.next_clear(at, kLeafBits);
        if (end - at >= count)
            return base + at;
        at = bits.next_set(end, kLeafBits);
    }
    CW_ASSERT(false);
}

uint64_t RunTree::run_at(uint64_t first, uint64_t limit) const
{
    if (first >= size_)
        return 0;
    const uint64_t end = first + std::min(limit, size_ - first);
    uint64_t at = first;
    while (at < end) {
        const auto part = static_cast<uint32_t>(std::min<uint64_t>(64, end - at));
        const auto run = static_cast<uint32_t>(std::countr_one(free_.bits(at, part)));
        at += run;
        if (run < part)
            break;
    }
    return at - first;
}

uint64_t RunTree::memory_bytes() const
{
    return leaf_count_ * kLeafBits / 8 + nodes_.size() * sizeof(Node);
}

}  // namespace cowraid
