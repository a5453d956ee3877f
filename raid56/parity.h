// SPDX-License-Identifier: MIT
// The parity mathematics: memory in, memory out; no device, no lock, no allocation in the hot calls.
//
// Field GF(2^8) with polynomial 0x11d, generator 2. With k data blocks D_0..D_{k-1}:
//   P = sum D_i,   Q = sum 2^i D_i,   further parities: the rows of a Cauchy-extended matrix are left to
// later versions; the interface takes any m. (H. P. Anvin, "The mathematics of RAID-6".)
//
// All vectors: `bytes` is a multiple of 64, pointers are 64-byte aligned, inputs and outputs do not overlap.
// A contract broken is an assertion, so that these functions cannot fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cowraid {

// More data columns than this would repeat a coefficient of Q.
inline constexpr uint32_t kMaxDataColumns = 255;
inline constexpr uint32_t kMaxParity = 2;

// parity[p] := parity p of data. data.size() = k >= 1, parity.size() = m in 0..2.
void parity_generate(std::span<const std::byte* const> data, std::span<std::byte* const> parity,
                     size_t bytes);

// The slow byte loop that the fast code is held against.
void parity_generate_reference(std::span<const std::byte* const> data, std::span<std::byte* const> parity,
                               size_t bytes);

// Solves the erased columns. `columns` has k data columns followed by m parity columns; those listed in
// `erased` (rising, at most m, parity included: the full set) are outputs, all others inputs. Erased parity
// is regenerated. `k` = number of data columns.
void parity_recover(std::span<std::byte* const> columns, uint32_t k, std::span<const uint32_t> erased,
                    size_t bytes);

// As parity_recover(), but computes only `wanted` (rising, a subset of `erased`): an erased column that is
// not wanted is neither read nor written and may be null.
void parity_recover_wanted(std::span<std::byte* const> columns, uint32_t k, std::span<const uint32_t> erased,
                           std::span<const uint32_t> wanted, size_t bytes);

// Adds what data column `column` contributes, or takes it away, which is the same:
// parity[p] += 2^(p * column) * data. A null parity is left out; parity.size() <= kMaxParity.
void parity_add(uint32_t column, const std::byte* data, std::span<std::byte* const> parity, size_t bytes);

// Compares the fast paths with the reference on fixed data, every erasure set up to m for a few widths.
// False: the processor path is broken and nothing may be written. Takes a few milliseconds.
[[nodiscard]] bool parity_selftest();

}  // namespace cowraid
