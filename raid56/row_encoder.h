// SPDX-License-Identifier: MIT
// The arithmetic half of a write: checksums of every block, parity, checksums of parity. Memory only.
#pragma once

#include <cstdint>
#include <span>

#include "raid56/array.h"

namespace cowraid {

// Whole rows of consecutive stripes, cut from a RowWrite so that memory for parity stays bounded.
struct WriteUnit {
    const ArrayGroup* group = nullptr;
    uint32_t write = 0;  // index of the RowWrite it belongs to
    uint64_t first_stripe = 0;
    uint64_t stripe_count = 0;
    uint32_t first_row = 0;
    uint32_t row_count = 0;
    std::span<const std::byte* const> blocks;  // as in RowWrite
    // In the order of `blocks`, with parity columns behind the data columns of each stripe.
    std::span<Checksum> checksums;
    std::byte* parity = nullptr;  // stripe_count * m * row_count blocks

    // Of stripe number `stripe` of the unit; `column` counts parity behind data, `row` from first_row.
    [[nodiscard]] const std::byte* block(uint64_t stripe, uint32_t column, uint32_t row) const;
    [[nodiscard]] std::byte* parity_block(uint64_t stripe, uint32_t parity_column, uint32_t row) const;
    [[nodiscard]] uint64_t parity_bytes() const
    {
        return stripe_count * group->geometry.parity * row_count * kBlockBytes;
    }
    [[nodiscard]] uint64_t checksum_count() const { return blocks.size() + parity_bytes() / kBlockBytes; }
    [[nodiscard]] uint64_t data_bytes() const { return blocks.size() * kBlockBytes; }
};

// What null block pointers stand for. Pads of adjoining rows adjoin in memory, too, so that a run of them
// is one vector of a request.
const std::byte* pad_block(uint32_t row);

// Fills unit.checksums and the memory at unit.parity. Returns the number of pads.
uint64_t encode_rows(const WriteUnit& unit);

}  // namespace cowraid
