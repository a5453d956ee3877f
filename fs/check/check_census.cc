// SPDX-License-Identifier: MIT
#include "fs/check/check_census.h"

#include <algorithm>
#include <bit>

#include "format/items.h"

namespace cowraid {

bool BlockCensus::Group::keeps_checksums() const
{
    return geometry().parity > 0 || (content() & kGroupData) != 0;
}

uint64_t BlockCensus::Group::next_used_stripe(uint64_t from) const
{
    const uint64_t stripe_blocks = geometry().stripe_data_blocks();
    const uint64_t end = geometry().data_blocks();
    const uint64_t block = used.next_set(from * stripe_blocks, end);
    return block == end ? geometry().stripe_count() : block / stripe_blocks;
}

BlockCensus::BlockCensus(const Array& array)
{
    for (const Ref<const ArrayGroup>& group : array.groups())
        groups_.push_back({group,
                           Bitmap(group->geometry.data_blocks()),
                           Bitmap(group->record.span_bytes() / kBlockBytes),
                           {}});
}

BlockCensus::Group* BlockCensus::find(VolumeAddress address)
{
    const auto after =
        std::upper_bound(groups_.begin(), groups_.end(), address,
                         [](VolumeAddress wanted, const Group& group) { return wanted < group.address(); });
    if (after == groups_.begin())
        return nullptr;
    Group& group = *std::prev(after);
    return address - group.address() < group.array_group->record.span_bytes() ? &group : nullptr;
}

// The part of the range that lies in the group of its first block; 0 blocks when there is none.
uint64_t BlockCensus::claim_in_group(VolumeAddress address, uint64_t block_count, uint32_t content,
                                     Claimed& claimed)
{
    Group* group = find(address);
    const uint64_t first = group == nullptr ? 0 : (address - group->address()) / kBlockBytes;
    if (group == nullptr || first >= group->geometry().data_blocks()) {
        claimed.claim = Claim::kOutside;
        return 0;
    }
    if ((group->content() & content) == 0) {
        claimed.claim = Claim::kWrongContent;
        return 0;
    }
    const uint64_t count = std::min(block_count, group->geometry().data_blocks() - first);
    if (claimed.claim == Claim::kTaken && !group->used.none(first, count)) {
        uint64_t twice = first;
        while (!group->used.test(twice))
            ++twice;
        claimed = {Claim::kTwice, address + (twice - first) * kBlockBytes};
    }
    group->used.set(first, count);
    return count;
}

BlockCensus::Claimed BlockCensus::claim(VolumeAddress address, uint64_t block_count, uint32_t content)
{
    Claimed claimed;
    if (address.value % kBlockBytes != 0)
        return {Claim::kUnaligned, {}};
    uint64_t done = claim_in_group(address, block_count, content, claimed);
    if (done == 0 || done == block_count)
        return claimed;
    claimed.claim = Claim::kCrossesGroup;
    while (done < block_count) {
        Claimed rest{Claim::kCrossesGroup, {}};
        const uint64_t more = claim_in_group(address + done * kBlockBytes, block_count - done, content, rest);
        if (more == 0)
            return rest;
        done += more;
    }
    return claimed;
}

uint32_t BlockCensus::note_checksums(VolumeAddress window_address, uint64_t mask)
{
    uint32_t outside = 0;
    while (mask != 0) {
        const auto first = static_cast<uint32_t>(std::countr_zero(mask));
        auto count = static_cast<uint64_t>(std::countr_one(mask >> first));
        const VolumeAddress address = window_address + uint64_t{first} * kBlockBytes;
        if (Group* group = find(address); group != nullptr) {
            const uint64_t at = (address - group->address()) / kBlockBytes;
            count = std::min(count, group->checksums.bit_count() - at);
            group->checksums.set(at, count);
        } else {
            count = 1;
            ++outside;
        }
        mask &= ~((count == 64 ? UINT64_MAX : (uint64_t{1} << count) - 1) << first);
    }
    return outside;
}

const char* claim_text(BlockCensus::Claim claim)
{
    switch (claim) {
    case BlockCensus::Claim::kTaken:
        return "is fine";
    case BlockCensus::Claim::kUnaligned:
        return "does not begin at a block";
    case BlockCensus::Claim::kOutside:
        return "lies outside the data addresses of all block groups";
    case BlockCensus::Claim::kCrossesGroup:
        return "crosses the end of a block group";
    case BlockCensus::Claim::kWrongContent:
        return "lies in a block group for other content";
    case BlockCensus::Claim::kTwice:
        return "holds blocks that something else refers to as well";
    }
    return "?";
}

}  // namespace cowraid
