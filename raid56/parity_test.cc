// SPDX-License-Identifier: MIT
#include "raid56/parity.h"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "base/buffer.h"
#include "base/random.h"
#include "raid56/gf256.h"
#include "raid56/parity_selftest.h"
#include "raid56/recovery_matrix.h"

using namespace cowraid;

namespace {

// k + m columns at some 64-byte aligned distance from page boundaries, with a guard behind each.
struct Columns {
    Columns(uint32_t k, uint32_t m, size_t bytes, size_t shift, uint64_t seed)
        : stride(bytes + 4096), buffer((k + m) * stride + 4096)
    {
        Prng(seed).fill(buffer.data(), buffer.size());
        for (size_t column = 0; column < size_t{k} + m; ++column) {
            columns.push_back(buffer.data() + column * stride + shift * (column % 3));
            data.push_back(columns.back());
        }
        data.resize(k);
    }
    [[nodiscard]] std::span<std::byte* const> parity() const
    {
        return std::span(columns).subspan(data.size());
    }

    size_t stride;
    AlignedBuffer buffer;
    std::vector<std::byte*> columns;
    std::vector<const std::byte*> data;
};

std::vector<std::byte> snapshot(const Columns& set)
{
    return {set.buffer.data(), set.buffer.data() + set.buffer.size()};
}

bool restored(const Columns& set, const std::vector<std::byte>& expected)
{
    return std::memcmp(set.buffer.data(), expected.data(), expected.size()) == 0;
}

void generate_without_q(std::span<const std::byte* const> data, std::span<std::byte* const> parity,
                        size_t bytes)
{
    parity_generate(data, parity.first(1), bytes);
    if (parity.size() > 1)
        std::memcpy(parity[1], parity[0], bytes);
}

void add_without_q(uint32_t column, const std::byte* data, std::span<std::byte* const> parity, size_t bytes)
{
    parity_add(column, data, parity.first(1), bytes);
}

void generate_one_byte_off(std::span<const std::byte* const> data, std::span<std::byte* const> parity,
                           size_t bytes)
{
    parity_generate(data, parity, bytes);
    if (data.size() == 13)
        parity.back()[bytes - 1] ^= std::byte{1};
}

// The bug of a decoder that is not told of erased parity: data is solved through whatever P holds.
void recover_without_parity_erasures(std::span<std::byte* const> columns, uint32_t k,
                                     std::span<const uint32_t> erased, size_t bytes)
{
    std::vector<uint32_t> data;
    for (const uint32_t column : erased)
        if (column < k)
            data.push_back(column);
    parity_recover(columns, k, data, bytes);
}

void recover_touching_an_input(std::span<std::byte* const> columns, uint32_t k,
                               std::span<const uint32_t> erased, size_t bytes)
{
    parity_recover(columns, k, erased, bytes);
    if (erased.size() == 2 && erased[0] == 1)
        columns[0][0] ^= std::byte{4};
}

}  // namespace

TEST_CASE("the field multiplies by table as by shifting, for every pair")
{
    bool same = true;
    for (uint32_t a = 0; a < 256; ++a)
        for (uint32_t b = 0; b < 256; ++b)
            same = same && gf_multiply(static_cast<uint8_t>(a), static_cast<uint8_t>(b)) ==
                               gf_multiply_slow(static_cast<uint8_t>(a), static_cast<uint8_t>(b));
    CHECK(same);
    CHECK(gf_power(0) == 1);
    CHECK(gf_power(1) == 2);
    CHECK(parity_coefficient(0, 77) == 1);
    CHECK(parity_coefficient(1, 8) == 0x1d);
}

TEST_CASE("fast parity is bit for bit the reference, every width, several lengths and alignments")
{
    for (uint32_t k = 1; k <= 20; ++k)
        for (uint32_t m = 0; m <= 2; ++m)
            for (const size_t bytes : {size_t{64}, size_t{128}, size_t{320}, size_t{4096}})
                for (const size_t shift : {size_t{0}, size_t{64}, size_t{192}}) {
                    if (bytes == 4096 && (shift != 0 || k % 5 != 1))
                        continue;  // the byte loop is slow
                    Columns set(k, m, bytes, shift, k * 64 + m);
                    parity_generate_reference(set.data, set.parity(), bytes);
                    const std::vector<std::byte> right = snapshot(set);
                    for (std::byte* parity : set.parity())
                        std::memset(parity, 0x77, bytes);
                    parity_generate(set.data, set.parity(), bytes);
                    CHECK(restored(set, right));
                }
}

TEST_CASE("wide stripes keep distinct coefficients")
{
    Columns set(255, 2, 64, 0, 5);
    parity_generate_reference(set.data, set.parity(), 64);
    const std::vector<std::byte> right = snapshot(set);
    for (const auto& erased : {std::vector<uint32_t>{0, 254}, {253, 254}, {100, 256}, {255, 256}}) {
        for (const uint32_t column : erased)
            std::memset(set.columns[column], 0, 64);
        parity_recover(set.columns, 255, erased, 64);
        CHECK(restored(set, right));
    }
}

TEST_CASE("every erasure set up to m comes back, up to 16 members, several lengths")
{
    uint32_t sets = 0;
    for (uint32_t n = 2; n <= 16; ++n)
        for (uint32_t m = 1; m <= 2 && m < n; ++m)
            for (const size_t bytes : {size_t{64}, size_t{576}, size_t{4096}}) {
                Columns set(n - m, m, bytes, 64, n * 8 + m);
                parity_generate(set.data, set.parity(), bytes);
                const std::vector<std::byte> right = snapshot(set);
                for (uint32_t first = 0; first < n; ++first)
                    for (uint32_t second = first; second < (m == 2 ? n : first + 1); ++second) {
                        std::vector<uint32_t> erased{first};
                        if (second != first)
                            erased.push_back(second);
                        for (const uint32_t column : erased)
                            std::memset(set.columns[column], 0x5a, bytes);
                        parity_recover(set.columns, n - m, erased, bytes);
                        REQUIRE(restored(set, right));
                        ++sets;
                    }
            }
    CHECK(sets == 3 * (135 + 812));
}

TEST_CASE("a column that is erased but not wanted is neither read nor written")
{
    for (uint32_t other = 0; other < 8; ++other) {
        for (uint32_t wanted = 0; wanted < 8; ++wanted) {
            if (wanted == other)
                continue;
            Columns set(6, 2, 4096, 0, 9);
            parity_generate(set.data, set.parity(), 4096);
            const std::vector<std::byte> right = snapshot(set);
            std::memset(set.columns[wanted], 1, 4096);
            set.columns[other] = nullptr;
            std::vector<uint32_t> erased{other, wanted};
            if (wanted < other)
                std::swap(erased[0], erased[1]);
            const uint32_t one[] = {wanted};
            parity_recover_wanted(set.columns, 6, erased, one, 4096);
            CHECK(restored(set, right));
        }
    }
}

TEST_CASE("more erasure sets than the plan cache holds, in alternation")
{
    Columns set(14, 2, 64, 0, 3);
    parity_generate(set.data, set.parity(), 64);
    const std::vector<std::byte> right = snapshot(set);
    Prng prng(11);
    for (int round = 0; round < 2000; ++round) {
        const auto first = static_cast<uint32_t>(prng.below(15));
        const uint32_t erased[] = {first, static_cast<uint32_t>(prng.between(first + 1, 15))};
        for (const uint32_t column : erased)
            std::memset(set.columns[column], round, 64);
        parity_recover(set.columns, 14, erased, 64);
        REQUIRE(restored(set, right));
    }
}

TEST_CASE("the self-test passes, and catches broken mathematics")
{
    CHECK(parity_selftest());
    CHECK(parity_selftest_of({parity_generate_reference, parity_recover, parity_add}));
    CHECK_FALSE(parity_selftest_of({generate_without_q, parity_recover, parity_add}));
    CHECK_FALSE(parity_selftest_of({generate_one_byte_off, parity_recover, parity_add}));
    CHECK_FALSE(parity_selftest_of({parity_generate, recover_without_parity_erasures, parity_add}));
    CHECK_FALSE(parity_selftest_of({parity_generate, recover_touching_an_input, parity_add}));
    CHECK_FALSE(parity_selftest_of({parity_generate, parity_recover, add_without_q}));
}
