// SPDX-License-Identifier: MIT
// Parity as the formula says it, one byte after the other. Slow and obvious on purpose: it shares neither
// tables nor code with the fast paths.
#include "base/assert.h"
#include "raid56/gf256.h"
#include "raid56/parity.h"

namespace cowraid {

void parity_generate_reference(std::span<const std::byte* const> data, std::span<std::byte* const> parity,
                               size_t bytes)
{
    CW_ASSERT(!data.empty() && data.size() <= kMaxDataColumns && parity.size() <= kMaxParity);
    for (size_t at = 0; at < bytes; ++at) {
        uint8_t p = 0;
        uint8_t q = 0;
        // Horner's rule from the last column down: q = (..(D_{k-1} * 2 + D_{k-2}) * 2 ..) * 2 + D_0.
        for (size_t column = data.size(); column-- > 0;) {
            const auto value = static_cast<uint8_t>(data[column][at]);
            p = static_cast<uint8_t>(p ^ value);
            q = static_cast<uint8_t>(gf_multiply_slow(2, q) ^ value);
        }
        if (!parity.empty())
            parity[0][at] = std::byte{p};
        if (parity.size() > 1)
            parity[1][at] = std::byte{q};
    }
}

}  // namespace cowraid
