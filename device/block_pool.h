// SPDX-License-Identifier: MIT
// Blocks addressed by content, and images made of them: a long recording of repetitive writes stays small,
// and thousands of crash states share what they have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/units.h"

namespace cowraid {

// Not thread-safe; its users lock.
class BlockPool {
public:
    static constexpr uint32_t kZeroBlock = 0;  // the block of zeros is always there

    BlockPool();

    // The index of a block (kBlockBytes long) with this content, added when it is new.
    uint32_t intern(std::span<const std::byte> block);
    // Valid as long as the pool.
    [[nodiscard]] std::span<const std::byte> block(uint32_t index) const;
    // xxh3-64 of the content.
    [[nodiscard]] uint64_t hash(uint32_t index) const { return hashes_[index]; }
    [[nodiscard]] size_t block_count() const { return hashes_.size(); }

private:
    static constexpr uint32_t kSlabBlocks = 256;

    std::vector<std::unique_ptr<std::byte[]>> slabs_;
    std::vector<uint64_t> hashes_;  // by index
    std::unordered_map<uint64_t, uint32_t> by_hash_;  // next free key on a collision
};

// Content of one device: block number to index in the pool. Blocks not listed are zeros.
class BlockImage {
public:
    void set(uint64_t block_number, uint32_t index, const BlockPool& pool);
    [[nodiscard]] uint32_t get(uint64_t block_number) const;
    // Equal for equal content, whatever the way there.
    [[nodiscard]] uint64_t hash() const { return hash_; }
    [[nodiscard]] const std::unordered_map<uint64_t, uint32_t>& blocks() const { return blocks_; }

    // What a block with this content contributes to hash(): 0 for zeros.
    static uint64_t share_of_hash(uint64_t block_number, uint64_t content_hash);

private:
    std::unordered_map<uint64_t, uint32_t> blocks_;
    uint64_t hash_ = 0;  // sum of the shares
};

}  // namespace cowraid
