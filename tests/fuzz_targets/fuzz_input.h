// SPDX-License-Identifier: MIT
// The bytes that libFuzzer gives a target, taken apart from the front.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/assert.h"
#include "base/checksum.h"
#include "base/le.h"
#include "format/stored_checksum.h"

namespace cowraid {

// Behind the end of the input numbers are 0 and runs of bytes empty.
class FuzzInput {
public:
    FuzzInput(const uint8_t* data, size_t size) : left_(std::as_bytes(std::span(data, size))) { }

    [[nodiscard]] bool empty() const { return left_.empty(); }
    // At most `bytes` of them.
    std::span<const std::byte> take(size_t bytes)
    {
        const std::span<const std::byte> taken = left_.first(std::min(bytes, left_.size()));
        left_ = left_.subspan(taken.size());
        return taken;
    }
    std::span<const std::byte> rest() { return take(left_.size()); }
    uint8_t take_u8() { return take_number<uint8_t>(); }
    uint16_t take_u16() { return take_number<le16>(); }
    uint32_t take_u32() { return take_number<le32>(); }
    uint64_t take_u64() { return take_number<le64>(); }

private:
    template <typename Number> Number take_number()
    {
        Number number{};
        const std::span<const std::byte> taken = take(sizeof number);
        if (!taken.empty())
            std::memcpy(&number, taken.data(), taken.size());
        return number;
    }

    std::span<const std::byte> left_;
};

// Memory that ends where the content does, so that the address sanitizer sees a read behind it.
inline std::vector<std::byte> copy_of(std::span<const std::byte> bytes)
{
    return {bytes.begin(), bytes.end()};
}

// The structure at the front of `bytes`, which are as long.
template <typename Disk> Disk load_front(std::span<const std::byte> bytes)
{
    Disk disk;
    CW_ASSERT(bytes.size() >= sizeof disk);
    std::memcpy(&disk, bytes.data(), sizeof disk);
    return disk;
}

template <typename Disk> void store_front(std::span<std::byte> bytes, const Disk& disk)
{
    CW_ASSERT(bytes.size() >= sizeof disk);
    std::memcpy(bytes.data(), &disk, sizeof disk);
}

// Makes the checksum at the front fit what follows it.
inline void seal(std::span<std::byte> structure)
{
    store_front(structure, le64(checksum_of_rest(structure)));
}

}  // namespace cowraid
