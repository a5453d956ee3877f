// SPDX-License-Identifier: MIT
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cowraid {

// Key of a tree item; orders by object, type, offset.
struct Key {
    uint64_t object = 0;
    uint8_t type = 0;
    uint64_t offset = 0;

    friend constexpr auto operator<=>(const Key&, const Key&) = default;
};

// Payload of an item.
using ItemBytes = std::vector<std::byte>;

// What a transaction does to an item.
struct ItemChange {
    Key key;
    bool erased;
    ItemBytes value;
};

inline constexpr Key kMinKey{0, 0, 0};
inline constexpr Key kMaxKey{UINT64_MAX, UINT8_MAX, UINT64_MAX};

// The smallest key above `key`; kMaxKey stays as it is.
constexpr Key next_key(Key key)
{
    if (key.offset != UINT64_MAX)
        return {key.object, key.type, key.offset + 1};
    if (key.type != UINT8_MAX)
        return {key.object, static_cast<uint8_t>(key.type + 1), 0};
    if (key.object != UINT64_MAX)
        return {key.object + 1, 0, 0};
    return key;
}

}  // namespace cowraid
