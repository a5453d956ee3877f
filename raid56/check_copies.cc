// SPDX-License-Identifier: MIT
// Looking at every copy of a piece without checksums per block, without changing anything.
#include <cstring>

#include "raid56/check.h"
#include "raid56/content.h"

namespace cowraid {

Status check_copies_of(ArrayState& state, VolumeAddress address, uint32_t block_count,
                       const ContentCheck& check, std::vector<BadBlock>& found)
{
    const Ref<const GroupList> list = state.groups.list();
    const ArrayGroup* group = list->find(address);
    if (group == nullptr || block_count == 0 || address.value % kBlockBytes != 0)
        return Err::kInvalid;
    const uint64_t data_bytes = group->record.data_bytes();
    const uint64_t offset = address - group->record.address;
    if (offset >= data_bytes || uint64_t{block_count} * kBlockBytes > data_bytes - offset)
        return Err::kInvalid;
    const CopySet copies(state, *group, address, block_count);
    AlignedBuffer memory(size_t{block_count} * kBlockBytes);
    const ReadPiece piece{
        .address = address, .block_count = block_count, .memory = memory.data(), .check = &check};
    const bool right = search_copies(piece, copies);
    for (uint32_t block = 0; block < block_count; ++block) {
        for (uint32_t lane = 0; lane < copies.lanes(); ++lane) {
            const std::byte* have = copies.block(lane, block);
            const BlockPlace place = copies.place(block);
            if (have == nullptr)
                report_block(state, *group, place, copies.copy(lane, block),
                             copies.cause(lane, block) == FaultCause::kMissing ? BadBlock::Kind::kMissing
                                                                               : BadBlock::Kind::kReadError,
                             found);
            else if (!right ||
                     std::memcmp(have, memory.data() + size_t{block} * kBlockBytes, kBlockBytes) != 0)
                report_block(state, *group, place, copies.copy(lane, block), BadBlock::Kind::kData, found);
        }
    }
    return {};
}

}  // namespace cowraid
