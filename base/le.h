// SPDX-License-Identifier: MIT
// Little-endian integer fields of on-disk structures: alignment 1, so that structures have no padding.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace cowraid {

static_assert(std::endian::native == std::endian::little, "big-endian hosts need byte swaps in Le<T>");

template <typename T> class Le {
public:
    Le() = default;
    Le(T value) { *this = value; }  // NOLINT: fields are assigned from plain integers

    Le& operator=(T value)
    {
        std::memcpy(bytes_, &value, sizeof value);
        return *this;
    }
    operator T() const { return get(); }  // NOLINT
    [[nodiscard]] T get() const
    {
        T value;
        std::memcpy(&value, bytes_, sizeof value);
        return value;
    }

private:
    uint8_t bytes_[sizeof(T)];
};

using le16 = Le<uint16_t>;
using le32 = Le<uint32_t>;
using le64 = Le<uint64_t>;

}  // namespace cowraid
