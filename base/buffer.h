// SPDX-License-Identifier: MIT
// Page-aligned memory for device I/O.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "base/ref.h"

namespace cowraid {

// Owned bytes aligned to 4096, so that O_DIRECT and ISA-L take them as they are. Content starts undefined
// unless made by zeroed(). Aborts when memory cannot be had.
class AlignedBuffer {
public:
    AlignedBuffer() = default;
    explicit AlignedBuffer(size_t bytes);
    static AlignedBuffer zeroed(size_t bytes);
    AlignedBuffer(AlignedBuffer&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0))
    {
    }
    AlignedBuffer& operator=(AlignedBuffer&& other) noexcept
    {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }
    AlignedBuffer(const AlignedBuffer&) = delete;
    AlignedBuffer& operator=(const AlignedBuffer&) = delete;
    ~AlignedBuffer();

    [[nodiscard]] std::byte* data() { return data_; }
    [[nodiscard]] const std::byte* data() const { return data_; }
    [[nodiscard]] size_t size() const { return size_; }
    [[nodiscard]] std::span<std::byte> span() { return {data_, size_}; }
    [[nodiscard]] std::span<const std::byte> span() const { return {data_, size_}; }

private:
    std::byte* data_ = nullptr;
    size_t size_ = 0;
};

// An AlignedBuffer with several owners: file data on its way from the writer to the members.
class SharedBuffer : public RefCounted<SharedBuffer> {
public:
    explicit SharedBuffer(size_t bytes) : buffer(bytes) { }
    AlignedBuffer buffer;
};

}  // namespace cowraid
