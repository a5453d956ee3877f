// SPDX-License-Identifier: MIT
// Looking at every copy of blocks whose checksums the caller knows, without changing anything.
#include "base/checksum.h"
#include "raid56/check.h"
#include "raid56/io_plan.h"

namespace cowraid {

Status check_copies_of(ArrayState& state, VolumeAddress address, std::span<const Checksum> checksums,
                       std::vector<BadBlock>& found)
{
    const Ref<const GroupList> list = state.groups.list();
    const ArrayGroup* group = list->find(address);
    if (group == nullptr || checksums.empty() || address.value % kBlockBytes != 0)
        return Err::kInvalid;
    const uint64_t data_bytes = group->record.data_bytes();
    const uint64_t offset = address - group->record.address;
    if (offset >= data_bytes || checksums.size() * kBlockBytes > data_bytes - offset)
        return Err::kInvalid;
    const uint32_t copies = group->geometry.copies;
    const auto place = [&](size_t block) {
        return place_of(group->geometry, offset + block * kBlockBytes);
    };
    std::vector<Status> read(checksums.size() * copies, Err::kMemberGone);
    AlignedBuffer memory(read.size() * kBlockBytes);
    IoPlan plan(IoKind::kRead, state.members);
    for (size_t index = 0; index < read.size(); ++index) {
        const BlockLocation at =
            locate_block(state, *group, place(index / copies), static_cast<uint32_t>(index % copies));
        if (at.device != nullptr)
            plan.add(
                {at.member, at.device, at.offset, memory.data() + index * kBlockBytes, kBlockBytes, 0, {}});
    }
    plan.run();
    for (const IoPart& part : plan.parts())
        for (uint64_t done = 0; done < part.bytes; done += kBlockBytes)
            read[static_cast<size_t>(part.memory + done - memory.data()) / kBlockBytes] = part.result;
    for (size_t index = 0; index < read.size(); ++index) {
        BadBlock::Kind kind = BadBlock::Kind::kData;
        if (!read[index].ok())
            kind = read[index] == Status(Err::kMemberGone) ? BadBlock::Kind::kMissing
                                                           : BadBlock::Kind::kReadError;
        else if (checksum_of(memory.data() + index * kBlockBytes, kBlockBytes) == checksums[index / copies])
            continue;
        report_block(state, *group, place(index / copies), static_cast<uint32_t>(index % copies), kind,
                     found);
    }
    return {};
}

}  // namespace cowraid
