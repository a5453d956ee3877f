// SPDX-License-Identifier: MIT
// Arithmetic of GF(2^8) with polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d) and generator 2: the field of the
// Linux RAID-6 and of ISA-L. Addition is xor. Tables are built and proven by the compiler.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/assert.h"

namespace cowraid {

inline constexpr uint32_t kGfPolynomial = 0x11d;

struct GfTables {
    std::array<uint8_t, 510>
        power{};  // power[i] = 2^i; twice the period, so that sums of logs need no modulo
    std::array<uint8_t, 256> logarithm{};  // logarithm[0] is meaningless
};

constexpr GfTables gf_make_tables()
{
    GfTables tables;
    uint32_t value = 1;
    for (size_t i = 0; i < 255; ++i) {
        tables.power[i] = static_cast<uint8_t>(value);
        tables.power[i + 255] = static_cast<uint8_t>(value);
        tables.logarithm[value] = static_cast<uint8_t>(i);
        value <<= 1;
        if ((value & 0x100) != 0)
            value ^= kGfPolynomial;
    }
    return tables;
}

inline constexpr GfTables kGfTables = gf_make_tables();

// 2^exponent; the period is 255.
constexpr uint8_t gf_power(uint32_t exponent)
{
    return kGfTables.power[exponent % 255];
}

constexpr uint8_t gf_multiply(uint8_t a, uint8_t b)
{
    if (a == 0 || b == 0)
        return 0;
    return kGfTables.power[size_t{kGfTables.logarithm[a]} + kGfTables.logarithm[b]];
}

// `a` must not be 0.
constexpr uint8_t gf_inverse(uint8_t a)
{
    return kGfTables.power[255u - kGfTables.logarithm[a]];
}

// The same product by shifting and adding: knows nothing of the tables, so that each proves the other.
constexpr uint8_t gf_multiply_slow(uint8_t a, uint8_t b)
{
    uint32_t product = 0;
    for (uint32_t bit = 8; bit-- > 0;) {
        product <<= 1;
        if ((product & 0x100) != 0)
            product ^= kGfPolynomial;
        if ((b >> bit & 1) != 0)
            product ^= a;
    }
    return static_cast<uint8_t>(product);
}

constexpr bool gf_generator_reaches_everything()
{
    std::array<bool, 256> seen{};
    for (uint32_t i = 0; i < 255; ++i) {
        const uint8_t value = gf_power(i);
        if (value == 0 || seen[value])
            return false;
        seen[value] = true;
    }
    return true;
}

constexpr bool gf_inverses_are_right()
{
    for (uint32_t a = 1; a < 256; ++a) {
        const auto value = static_cast<uint8_t>(a);
        if (gf_multiply_slow(value, gf_inverse(value)) != 1)
            return false;
    }
    return true;
}

constexpr bool gf_tables_agree_with_shifting()
{
    for (uint32_t a = 0; a < 256; a += 3)
        for (uint32_t b = 0; b < 256; b += 5)
            if (gf_multiply(static_cast<uint8_t>(a), static_cast<uint8_t>(b)) !=
                gf_multiply_slow(static_cast<uint8_t>(a), static_cast<uint8_t>(b)))
                return false;
    return true;
}

static_assert(gf_power(8) == 0x1d && gf_power(255) == 1);
static_assert(gf_generator_reaches_everything());
static_assert(gf_inverses_are_right());
static_assert(gf_tables_agree_with_shifting());

}  // namespace cowraid
