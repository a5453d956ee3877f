// SPDX-License-Identifier: MIT
#include "raid56/lost_block.h"

#include <algorithm>

namespace cowraid {

void count_fault(ArrayState& state, const ArrayGroup& group, const BlockPlace& place, uint32_t copy,
                 FaultCause cause)
{
    const BlockLocation at = locate_block(state, group, place, copy);
    if (cause == FaultCause::kMissing || (cause == FaultCause::kWrong && at.stale))
        return;
    const bool parity = place.column >= group.geometry.data_columns;
    const MemberCounter counter = cause == FaultCause::kReadError ? MemberCounter::kReadErrors
                                  : parity                        ? MemberCounter::kParity
                                                                  : MemberCounter::kCorruption;
    state.members.count(at.member, counter);
}

void KnownBlocks::add(VolumeAddress address, uint64_t block_count, std::byte* memory)
{
    if (block_count > 0)
        runs_.push_back({address, block_count * kBlockBytes, memory});
}

void KnownBlocks::sort()
{
    std::sort(runs_.begin(), runs_.end(), [](const Run& a, const Run& b) { return a.address < b.address; });
}

std::byte* KnownBlocks::find(VolumeAddress address) const
{
    const auto after =
        std::upper_bound(runs_.begin(), runs_.end(), address,
                         [](VolumeAddress wanted, const Run& run) { return wanted < run.address; });
    if (after == runs_.begin())
        return nullptr;
    const Run& run = *std::prev(after);
    const uint64_t inside = address - run.address;
    return inside < run.bytes ? run.memory + inside : nullptr;
}

}  // namespace cowraid
