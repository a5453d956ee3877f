// SPDX-License-Identifier: MIT
// What a file must hold. Offsets are those of the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cowraid::test {

constexpr uint64_t kModelBlockBytes = 4096;
constexpr uint64_t kModelBytesMax = 1536 << 10;  // of a file, from its base on

enum class BlockKind : uint8_t {
    kHole,
    kData,
    kEither,  // the filesystem may choose
};

// All before `base`, a multiple of the block, is a hole. The size is never below it.
class FileModel {
public:
    explicit FileModel(uint64_t base);

    [[nodiscard]] uint64_t base() const { return base_; }
    [[nodiscard]] uint64_t size() const { return base_ + bytes_.size(); }
    // Behind the largest possible size.
    [[nodiscard]] uint64_t limit() const { return base_ + kModelBytesMax; }
    // Those from the base on.
    [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
    [[nodiscard]] std::span<const std::byte> bytes(uint64_t offset, uint64_t count) const;
    // Of the block at `offset`, which lies below the size.
    [[nodiscard]] BlockKind kind_at(uint64_t offset) const;
    // Whether the block at `offset` holds anything but zeros.
    [[nodiscard]] bool has_content_at(uint64_t offset) const;

    void write(uint64_t offset, std::span<const std::byte> data);
    // As a write of `data`, but what are zeros may become a hole. `data` may be of this file.
    void copy_in(uint64_t offset, std::span<const std::byte> data);
    void resize(uint64_t size);
    // Below the size only. Whole blocks become holes; in parts of others zeros may be stored.
    void punch(uint64_t offset, uint64_t count);

private:
    [[nodiscard]] size_t block_of(uint64_t offset) const { return (offset - base_) / kModelBlockBytes; }

    const uint64_t base_;
    std::vector<std::byte> bytes_;
    std::vector<BlockKind> kinds_;
};

}  // namespace cowraid::test
