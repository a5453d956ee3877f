// SPDX-License-Identifier: MIT
#include "raid56/lost_block.h"

#include <algorithm>

namespace cowraid {

namespace {

// Whether a block of the row, or the block that has copies, is known to be lost.
bool has_known_loss(const ArrayState& state, const ArrayGroup& group, const BlockPlace& place)
{
    BlockVerifier* const verifier = state.verifier.load(std::memory_order_acquire);
    for (uint32_t column = 0; verifier != nullptr && column < group.geometry.data_columns; ++column)
        if ((group.geometry.parity > 0 || column == place.column) &&
            verifier->known_lost(address_of(group, {place.stripe, column, place.row})))
            return true;
    return false;
}

}  // namespace

bool count_fault(ArrayState& state, const ArrayGroup& group, const BlockPlace& place, uint32_t copy,
                 FaultCause cause)
{
    const BlockLocation at = locate_block(state, group, place, copy);
    if (!is_bad(cause) || (cause == FaultCause::kWrong && (at.stale || has_known_loss(state, group, place))))
        return false;
    const bool parity = place.column >= group.geometry.data_columns;
    const MemberCounter counter = cause == FaultCause::kReadError ? MemberCounter::kReadErrors
                                  : parity                        ? MemberCounter::kParity
                                                                  : MemberCounter::kCorruption;
    state.members.count(at.member, counter);
    return true;
}

bool does_without(const ArrayState& state, Patience patience, const ArrayGroup& group,
                  const BlockPlace& place, uint32_t copy)
{
    const BlockLocation at = locate_block(state, group, place, copy);
    if (patience == Patience::kForAll || at.device == nullptr || !state.members.slow(*at.device))
        return false;
    const uint64_t waits = at.device->in_flight().silent_ms();
    const auto slower = [&](BlockDevice& other, MemberId member) {
        const uint64_t other_waits = other.in_flight().silent_ms();
        return other_waits > waits || (other_waits == waits && member < at.member);
    };
    uint32_t before = 0;  // columns that it does without first
    if (group.geometry.parity == 0) {
        for (uint32_t other = 0; other < group.geometry.copies; ++other) {
            const BlockLocation its = locate_block(state, group, place, other);
            before += its.device == nullptr || its.stale ||
                              (its.device != at.device && slower(*its.device, its.member))
                          ? 1
                          : 0;
        }
        return before + 1 < group.geometry.copies;
    }
    before = state.missing_columns(group);
    for (const GroupColumn& column : group.record.columns) {
        BlockDevice* const other = state.members.device(column.member);
        before += other != nullptr && other != at.device && slower(*other, column.member) ? 1 : 0;
    }
    return before < group.tolerance;
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
