// SPDX-License-Identifier: MIT
// Input: what to fit, which superblock, the number of groups, then their records.
#include "base/random.h"
#include "format/group_map_codec.h"
#include "format/member_layout.h"
#include "format/to_text.h"
#include "raid56/geometry.h"
#include "tests/fuzz_targets/fuzz_input.h"
#include "tests/fuzz_targets/targets.h"
#include "tests/support/format_sample.h"

using namespace cowraid;

namespace {

using namespace group_map_input;

std::vector<std::byte> map_from(FuzzInput& input, uint8_t fit, const Superblock& superblock)
{
    if ((fit & kRaw) != 0)
        return copy_of(input.rest());
    DiskGroupMap head{};
    head.magic = kGroupMapMagic;
    std::memcpy(head.volume_uuid, superblock.volume_uuid.bytes.data(), sizeof head.volume_uuid);
    head.generation = superblock.generation.value;
    head.group_count = input.take_u16();
    const std::span<const std::byte> records = input.rest();
    std::vector<std::byte> map(round_up(sizeof head + records.size(), kBlockBytes));
    head.bytes = static_cast<uint32_t>(map.size());
    store_front(std::span(map), head);
    std::copy(records.begin(), records.end(), map.begin() + sizeof head);
    return map;
}

// Where a few blocks of the group lie.
void check_geometry(const GroupRecord& group, const Superblock& superblock)
{
    const Geometry geometry = geometry_of(group);
    CW_ASSERT(geometry.columns() * geometry.sets == group.columns.size());
    CW_ASSERT(group.address.value + group.span_bytes() <= superblock.next_group_address);
    for (uint64_t part = 0; part < 16; ++part) {
        const uint64_t blocks = group.span_bytes() / kBlockBytes;
        const uint64_t offset = std::min(blocks / 15 * part, blocks - 1) * kBlockBytes;
        const BlockPlace place = place_of(geometry, offset);
        CW_ASSERT(offset_of(geometry, place) == offset);
        CW_ASSERT(column_offset(geometry, place) <= group.column_bytes - kBlockBytes);
        for (uint32_t copy = 0; copy < geometry.copies; ++copy)
            CW_ASSERT(group_column(geometry, place.stripe, place.column, copy) < group.columns.size());
    }
}

void check_columns(const GroupRecord& group, const Superblock& superblock)
{
    uint64_t largest = 0;
    for (const MemberRecord& member : superblock.members)
        largest = std::max(largest, member.slot_count * member.slot_bytes);
    CW_ASSERT(group.column_bytes <= max_column_bytes(largest));
    for (const GroupColumn& column : group.columns) {
        const MemberRecord& member = *superblock.member(column.member);
        CW_ASSERT(member_layout_valid(member));
        uint64_t bytes = 0;
        for (const SlotRun& run : column.runs) {
            const uint64_t end = (uint64_t{run.first_slot} + run.slot_count) * member.slot_bytes;
            CW_ASSERT(end <= member.size_bytes - member.slots_offset);
            bytes += run.slot_count * member.slot_bytes;
        }
        CW_ASSERT(bytes == group.column_bytes);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
{
    FuzzInput input(data, size);
    const uint8_t fit = input.take_u8();
    const Superblock superblock = superblock_of(input.take_u8());
    std::vector<std::byte> map = map_from(input, fit, superblock);
    if ((fit & kFitChecksum) != 0 && map.size() >= sizeof(DiskGroupMap))
        seal(map);
    MapRef expected{.generation = superblock.generation, .bytes = static_cast<uint32_t>(map.size())};
    if (map.size() >= sizeof(DiskGroupMap))
        expected.checksum = load_front<DiskGroupMap>(map).checksum;
    const Result<GroupMap> decoded = decode_group_map(map, expected, superblock);
    if (!decoded.ok())
        return 0;
    for (const GroupRecord& group : decoded->groups) {
        check_columns(group, superblock);
        check_geometry(group, superblock);
    }
    CW_ASSERT(decoded->groups.empty() || !to_text(*decoded).empty());
    MapRef again_ref;
    const std::vector<std::byte> encoded = encode_group_map(*decoded, superblock.volume_uuid, again_ref);
    const Result<GroupMap> again = decode_group_map(encoded, again_ref, superblock);
    CW_ASSERT(again.ok() && again->groups == decoded->groups);
    return 0;
}
