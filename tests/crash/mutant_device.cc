// SPDX-License-Identifier: MIT
#include "tests/crash/mutant_device.h"

#include "format/superblock.h"

namespace cowraid::test {

namespace {

// Offset of the ring that holds `offset`, or UINT64_MAX.
uint64_t ring_of(uint64_t offset)
{
    for (const uint64_t ring : kSuperblockRingOffset)
        if (offset >= ring && offset < ring + uint64_t{kSuperblockSlotBytes} * kSuperblockSlotCount)
            return ring;
    return UINT64_MAX;
}

}  // namespace

bool MutantDevice::drops(const IoRequest& request)
{
    const bool superblock = request.kind == IoKind::kWrite && ring_of(request.offset.value) != UINT64_MAX;
    const bool after_superblock = superblock_written_;
    if (request.kind == IoKind::kFlush)
        superblock_written_ = false;
    superblock_written_ = superblock_written_ || superblock;
    switch (mutant_) {
    case CommitMutant::kSuperblockBeforeFlush:
        return request.kind == IoKind::kFlush && !after_superblock;
    case CommitMutant::kNoFinalFlush:
        return request.kind == IoKind::kFlush && after_superblock;
    case CommitMutant::kSkipMemberFlush:
        return request.kind == IoKind::kFlush && first_;
    case CommitMutant::kSkipMemberData:
        return request.kind == IoKind::kWrite && first_ && request.offset.value >= kMinHeadBytes;
    case CommitMutant::kOneSuperblock:
        return superblock && !first_;
    default:
        return false;
    }
}

void MutantDevice::pass(IoRequest& request)
{
    const DeviceOffset offset = request.offset;
    const uint64_t ring = ring_of(offset.value);
    if (mutant_ == CommitMutant::kFixedRingSlot && request.kind == IoKind::kWrite && ring != UINT64_MAX)
        request.offset = {ring};
    request.device = inner_.get();
    inner_->perform(request);
    request.device = this;
    request.offset = offset;
}

void MutantDevice::perform(IoRequest& request)
{
    if (drops(request))
        request.result = {};
    else
        pass(request);
}

}  // namespace cowraid::test
