// SPDX-License-Identifier: MIT
#include "tests/fileops/file_model.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"

namespace cowraid::test {

FileModel::FileModel(uint64_t base) : base_(base)
{
    CW_ASSERT(base % kModelBlockBytes == 0);
    bytes_.reserve(kModelBytesMax);
}

std::span<const std::byte> FileModel::bytes(uint64_t offset, uint64_t count) const
{
    CW_ASSERT(offset >= base_ && offset + count <= size());
    return std::span(bytes_).subspan(offset - base_, count);
}

BlockKind FileModel::kind_at(uint64_t offset) const
{
    CW_ASSERT(offset < size());
    return offset < base_ ? BlockKind::kHole : kinds_[block_of(offset)];
}

bool FileModel::has_content_at(uint64_t offset) const
{
    if (offset < base_)
        return false;
    const size_t begin = block_of(offset) * kModelBlockBytes;
    const size_t end = std::min<size_t>(begin + kModelBlockBytes, bytes_.size());
    return std::any_of(bytes_.begin() + static_cast<ptrdiff_t>(begin),
                       bytes_.begin() + static_cast<ptrdiff_t>(end),
                       [](std::byte byte) { return byte != std::byte{}; });
}

void FileModel::write(uint64_t offset, std::span<const std::byte> data)
{
    if (data.empty())
        return;
    CW_ASSERT(offset >= base_ && offset + data.size() <= limit());
    if (offset + data.size() > size())
        resize(offset + data.size());
    memmove(&bytes_[offset - base_], data.data(), data.size());
    for (size_t block = block_of(offset); block <= block_of(offset + data.size() - 1); ++block)
        kinds_[block] = BlockKind::kData;
}

void FileModel::copy_in(uint64_t offset, std::span<const std::byte> data)
{
    write(offset, data);
    for (uint64_t at = offset; at < offset + data.size(); at = (at / kModelBlockBytes + 1) * kModelBlockBytes)
        kinds_[block_of(at)] = BlockKind::kEither;
}

void FileModel::resize(uint64_t size)
{
    CW_ASSERT(size >= base_ && size <= limit());
    bytes_.resize(size - base_);
    kinds_.resize((size - base_ + kModelBlockBytes - 1) / kModelBlockBytes);
}

void FileModel::punch(uint64_t offset, uint64_t count)
{
    const uint64_t end = std::min(offset + count, size());
    if (offset >= end)
        return;
    std::fill(bytes_.begin() + static_cast<ptrdiff_t>(offset - base_),
              bytes_.begin() + static_cast<ptrdiff_t>(end - base_), std::byte{});
    for (size_t block = block_of(offset); block <= block_of(end - 1); ++block) {
        const uint64_t begin = base_ + block * kModelBlockBytes;
        if (begin >= offset && begin + kModelBlockBytes <= offset + count)
            kinds_[block] = BlockKind::kHole;
        else if (kinds_[block] == BlockKind::kHole || (begin >= offset && end == size()))
            kinds_[block] = BlockKind::kEither;  // or all that the file has of it is cleared
    }
}

}  // namespace cowraid::test
