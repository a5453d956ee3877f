// SPDX-License-Identifier: MIT
#include "raid56/content.h"
#include "raid56/content_search.h"
#include "raid56/io_plan.h"

namespace cowraid {

CopySet::CopySet(ArrayState& state, const ArrayGroup& group, VolumeAddress address, uint32_t block_count)
    : group_(group),
      offset_(address - group.record.address),
      block_count_(block_count),
      cells_(size_t{group.geometry.copies} * block_count),
      memory_(cells_.size() * kBlockBytes)
{
    IoPlan plan(IoKind::kRead, state.members);
    for (uint32_t lane = 0; lane < lanes(); ++lane) {
        for (uint32_t i = 0; i < block_count; ++i) {
            const BlockLocation location = locate_block(state, group, place(i), copy(lane, i));
            if (location.device != nullptr)
                plan.add({location.member,
                          location.device,
                          location.offset,
                          memory_.data() + (size_t{lane} * block_count + i) * kBlockBytes,
                          kBlockBytes,
                          0,
                          {}});
        }
    }
    plan.run();
    for (const IoPart& part : plan.parts()) {
        for (uint64_t at = 0; at < part.bytes; at += kBlockBytes) {
            Cell& cell = cells_[static_cast<size_t>(part.memory + at - memory_.data()) / kBlockBytes];
            cell.read = part.result.ok();
            if (part.result == Status(Err::kIo))
                cell.cause = FaultCause::kReadError;
        }
    }
}

const std::byte* CopySet::block(uint32_t lane, uint32_t block) const
{
    return cell(lane, block).read ? memory_.data() + (size_t{lane} * block_count_ + block) * kBlockBytes
                                  : nullptr;
}

std::vector<const std::byte*> CopySet::whole(uint32_t lane) const
{
    std::vector<const std::byte*> contents;
    for (uint32_t i = 0; i < block_count_; ++i) {
        if (block(lane, i) == nullptr)
            return {};
        contents.push_back(block(lane, i));
    }
    return contents;
}

BlockPlace CopySet::place(uint32_t block) const
{
    return place_of(group_.geometry, offset_ + uint64_t{block} * kBlockBytes);
}

uint32_t CopySet::copy(uint32_t lane, uint32_t block) const
{
    const uint32_t copies = group_.geometry.copies;
    return static_cast<uint32_t>((lane + copies - place(block).stripe % copies) % copies);
}

bool search_copies(const ReadPiece& piece, const CopySet& copies)
{
    ContentSearch search(piece);
    // Whole copies first: nearly always one member is wrong and another right.
    for (uint32_t lane = 0; lane < copies.lanes(); ++lane) {
        const std::vector<const std::byte*> contents = copies.whole(lane);
        if (!contents.empty() && search.accepts(contents))
            return true;
    }
    for (uint32_t block = 0; block < piece.block_count; ++block)
        for (uint32_t lane = 0; lane < copies.lanes(); ++lane)
            if (const std::byte* content = copies.block(lane, block); content != nullptr)
                search.offer(block, content);
    return search.run();
}

}  // namespace cowraid
