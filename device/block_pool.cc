// SPDX-License-Identifier: MIT
#include "device/block_pool.h"

#include <cstring>

#include "base/assert.h"
#include "base/buffer.h"
#include "base/checksum.h"
#include "base/random.h"

namespace cowraid {

BlockPool::BlockPool()
{
    const AlignedBuffer zeros = AlignedBuffer::zeroed(kBlockBytes);
    CW_ASSERT(intern(zeros.span()) == kZeroBlock);
}

uint32_t BlockPool::intern(std::span<const std::byte> content)
{
    CW_ASSERT(content.size() == kBlockBytes);
    const uint64_t hash = checksum_of(content);
    uint64_t key = hash;
    for (auto found = by_hash_.find(key); found != by_hash_.end(); found = by_hash_.find(++key)) {
        if (std::memcmp(block(found->second).data(), content.data(), kBlockBytes) == 0)
            return found->second;
    }
    const auto index = static_cast<uint32_t>(hashes_.size());
    if (index % kSlabBlocks == 0)
        slabs_.push_back(std::make_unique_for_overwrite<std::byte[]>(size_t{kSlabBlocks} * kBlockBytes));
    std::memcpy(slabs_.back().get() + size_t{index % kSlabBlocks} * kBlockBytes, content.data(), kBlockBytes);
    hashes_.push_back(hash);
    by_hash_.emplace(key, index);
    return index;
}

std::span<const std::byte> BlockPool::block(uint32_t index) const
{
    return {slabs_[index / kSlabBlocks].get() + size_t{index % kSlabBlocks} * kBlockBytes, kBlockBytes};
}

uint64_t BlockImage::share_of_hash(uint64_t block_number, uint64_t content_hash)
{
    if (content_hash == zero_block_checksum())
        return 0;
    return Prng(content_hash ^ Prng(block_number).next()).next();
}

void BlockImage::set(uint64_t block_number, uint32_t index, const BlockPool& pool)
{
    hash_ -= share_of_hash(block_number, pool.hash(get(block_number)));
    hash_ += share_of_hash(block_number, pool.hash(index));
    if (index == BlockPool::kZeroBlock)
        blocks_.erase(block_number);
    else
        blocks_[block_number] = index;
}

uint32_t BlockImage::get(uint64_t block_number) const
{
    const auto found = blocks_.find(block_number);
    return found == blocks_.end() ? BlockPool::kZeroBlock : found->second;
}

}  // namespace cowraid
