// SPDX-License-Identifier: MIT
// Content of files and blocks, compared.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

namespace cowraid::test {

// As ==, which compares vectors of std::byte byte by byte: that took a quarter of the time of some tests.
inline bool same(std::span<const std::byte> a, std::span<const std::byte> b)
{
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

inline bool contains(std::span<const std::byte> bytes, std::span<const std::byte> part)
{
    return memmem(bytes.data(), bytes.size(), part.data(), part.size()) != nullptr;
}

}  // namespace cowraid::test
