// SPDX-License-Identifier: MIT
// Where the next write of a ring of blocks goes: the same for both logs.
#pragma once

#include <cstdint>

namespace cowraid {

// Finds `wanted` contiguous free blocks of a member's `log`: at its head, or at the beginning when too few
// are left before the end; those then stay unused this time round. False: there is no such place.
template <typename MemberLog> bool place_in_log(const MemberLog& log, uint32_t wanted, uint32_t& first_block)
{
    const bool fits_before_end = wanted <= log.block_count - log.head;
    first_block = fits_before_end ? log.head : 0;
    if (log.segments.empty())
        return wanted <= log.block_count;
    const uint32_t tail = log.segments.front().first_block;
    if (log.head > tail)
        return fits_before_end || wanted <= tail;
    return wanted <= tail - log.head;
}

}  // namespace cowraid
