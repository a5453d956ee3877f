// SPDX-License-Identifier: MIT
// Pure arithmetic between volume addresses and (stripe, column, row), and on to columns of a group.
// Nothing here knows a device. The only part of raid56/ that alloc/ may include.
//
// Under parity a stripe has a chunk on every column:
//
//   stripe s:   data column 0        data column 1     ...   data column k-1      P        Q
//               rows 0..r-1          rows r..2r-1
//   offset = address - group.address;  stripe = offset / (k * chunk);  column = offset % (k * chunk) / chunk;
//   row = offset % chunk / 4096. So addresses run down a chunk, then along the stripe.
//
// Without parity a stripe is one chunk and its copies, and the stripes of a group take its sets of members in
// turn: raid0 over four members has four sets of one, raid10 two sets of two, a mirror is one set.
//
//   group columns, raid10:   0         1           2         3
//                            stripe 0  stripe 0    stripe 1  stripe 1
//                            stripe 2  stripe 2    stripe 3  stripe 3
//
// Columns rotate within their set: logical column c of the t-th stripe of a set lies on its column
// (c + t) % columns, so that parity and data load every member alike. Q's coefficients follow the logical
// column, never the member.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "format/group_map_codec.h"

namespace cowraid {

struct Geometry {
    uint32_t data_columns = 1;  // k of a stripe; 1 without parity
    uint32_t parity = 0;  // m
    uint32_t copies = 1;  // of each data column; more than one only with parity 0
    uint32_t sets = 1;  // that stripes take in turn; more than one only with parity 0
    uint32_t chunk_bytes = kDefaultChunkBytes;
    uint64_t column_bytes = 0;

    // Of a stripe: of one set.
    [[nodiscard]] uint32_t columns() const { return data_columns * copies + parity; }
    [[nodiscard]] uint32_t rows() const { return chunk_bytes / kBlockBytes; }
    [[nodiscard]] uint32_t stripe_data_bytes() const { return data_columns * chunk_bytes; }
    [[nodiscard]] uint32_t stripe_data_blocks() const { return data_columns * rows(); }
    [[nodiscard]] uint64_t stripe_count() const { return column_bytes / chunk_bytes * sets; }
    [[nodiscard]] uint64_t row_count() const { return column_bytes / kBlockBytes * sets; }
    // Blocks of user addresses.
    [[nodiscard]] uint64_t data_blocks() const { return data_columns * row_count(); }
    // The set that holds a stripe, and how many stripes come before it there.
    [[nodiscard]] uint32_t set_of(uint64_t stripe) const { return static_cast<uint32_t>(stripe % sets); }
    [[nodiscard]] uint64_t turn_of(uint64_t stripe) const { return stripe / sets; }
};

// One block inside a group. `column` is logical: 0..k-1 data, k..k+m-1 parity.
struct BlockPlace {
    uint64_t stripe = 0;
    uint32_t column = 0;
    uint32_t row = 0;

    friend bool operator==(const BlockPlace&, const BlockPlace&) = default;
};

Geometry geometry_of(const GroupRecord& group);

// `offset` is from the group's address and below its span (data addresses first, parity behind them).
BlockPlace place_of(const Geometry& geometry, uint64_t offset);
// The inverse; block aligned.
uint64_t offset_of(const Geometry& geometry, const BlockPlace& place);

// Index into the group's columns that holds logical column `column` of `stripe`; `copy` < copies.
uint32_t group_column(const Geometry& geometry, uint64_t stripe, uint32_t column, uint32_t copy = 0);
// Byte offset inside that column.
uint64_t column_offset(const Geometry& geometry, const BlockPlace& place);

}  // namespace cowraid
