// SPDX-License-Identifier: MIT
#include "raid56/row_encoder.h"

#include <array>

#include "base/checksum.h"
#include "raid56/parity.h"

namespace cowraid {

namespace {

constexpr uint32_t kPadRows = 16;
alignas(kBlockBytes) const std::array<std::byte, size_t{kPadRows} * kBlockBytes> kPads{};

// One row: every block is hashed and folded into parity while it is in the first-level cache, so that a
// stripe crosses the memory bus once.
uint64_t encode_row(const WriteUnit& unit, uint64_t stripe, uint32_t row)
{
    const uint32_t k = unit.group->geometry.data_columns;
    const uint32_t m = unit.group->geometry.parity;
    Checksum* checksums = unit.checksums.data() + stripe * (k + m) * unit.row_count + row;
    const std::byte* const* blocks = unit.blocks.data() + stripe * k * unit.row_count + row;
    std::array<const std::byte*, kMaxDataColumns> data;
    uint64_t pads = 0;
    for (uint32_t column = 0; column < k; ++column) {
        const std::byte* block = blocks[size_t{column} * unit.row_count];
        if (m > 0)
            data[column] = block != nullptr ? block : pad_block(row);
        pads += block == nullptr;
        checksums[size_t{column} * unit.row_count] =
            block != nullptr ? checksum_of(block, kBlockBytes) : zero_block_checksum();
    }
    std::array<std::byte*, kMaxParity> parity;
    for (uint32_t p = 0; p < m; ++p)
        parity[p] = unit.parity_block(stripe, p, row);
    if (m > 0)
        parity_generate(std::span(data).first(k), std::span(parity).first(m), kBlockBytes);
    for (uint32_t p = 0; p < m; ++p)
        checksums[size_t{k + p} * unit.row_count] = checksum_of(parity[p], kBlockBytes);
    return pads;
}

}  // namespace

const std::byte* WriteUnit::block(uint64_t stripe, uint32_t column, uint32_t row) const
{
    const uint32_t k = group->geometry.data_columns;
    if (column >= k)
        return parity_block(stripe, column - k, row);
    const std::byte* block = blocks[(stripe * k + column) * row_count + row];
    return block != nullptr ? block : pad_block(row);
}

std::byte* WriteUnit::parity_block(uint64_t stripe, uint32_t parity_column, uint32_t row) const
{
    return parity + ((stripe * group->geometry.parity + parity_column) * row_count + row) * kBlockBytes;
}

const std::byte* pad_block(uint32_t row)
{
    return kPads.data() + size_t{row % kPadRows} * kBlockBytes;
}

uint64_t encode_rows(const WriteUnit& unit)
{
    uint64_t pads = 0;
    for (uint64_t stripe = 0; stripe < unit.stripe_count; ++stripe)
        for (uint32_t row = 0; row < unit.row_count; ++row)
            pads += encode_row(unit, stripe, row);
    return pads;
}

}  // namespace cowraid
