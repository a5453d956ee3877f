// SPDX-License-Identifier: MIT
// Input: what to fit, then the fields of DiskSuperblock, then the member table.
#include "format/member_layout.h"
#include "format/superblock_codec.h"
#include "format/to_text.h"
#include "tests/fuzz_targets/fuzz_input.h"
#include "tests/fuzz_targets/targets.h"

using namespace cowraid;

namespace {

using namespace superblock_input;

std::vector<std::byte> slot_from(FuzzInput input)
{
    const uint8_t fit = input.take_u8();
    if ((fit & kRaw) != 0)
        return copy_of(input.rest());
    std::vector<std::byte> slot(sizeof(DiskSuperblock));
    const std::span<const std::byte> fields = input.take(kFieldBytes);
    std::copy(fields.begin(), fields.end(), slot.begin());
    const std::span<const std::byte> members = input.rest();
    slot.insert(slot.end(), members.begin(), members.end());
    auto disk = load_front<DiskSuperblock>(slot);
    if ((fit & kFitLengths) != 0) {
        disk.magic = kSuperblockMagic;
        disk.version = kFormatVersion;
        disk.member_count = static_cast<uint32_t>(members.size() / sizeof(DiskMember));
        disk.bytes = static_cast<uint32_t>(sizeof disk + disk.member_count * sizeof(DiskMember));
        store_front(slot, disk);
    }
    if ((fit & kFitChecksum) != 0 && disk.bytes >= sizeof disk && disk.bytes <= slot.size())
        seal(std::span(slot).first(disk.bytes));
    return slot;
}

void check_member(const MemberRecord& record)
{
    CW_ASSERT(member_layout_valid(record));
    CW_ASSERT(record.slots_offset + record.slot_count * record.slot_bytes <= record.size_bytes);
    CW_ASSERT(record.map_offset[0] + record.map_bytes <= record.size_bytes);
    CW_ASSERT(record.map_offset[1] + record.map_bytes <= record.size_bytes);
    CW_ASSERT(record.intent_log_offset + record.intent_log_bytes <= record.size_bytes);
    CW_ASSERT(record.fsync_log_offset + record.fsync_log_bytes <= record.size_bytes);
    CW_ASSERT(plan_member_layout(record.size_bytes).ok());
    CW_ASSERT(!to_text(record).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
{
    const std::vector<std::byte> slot = slot_from({data, size});
    const Result<SuperblockIdentity> identity = peek_superblock(slot);
    const Result<Superblock> superblock = decode_superblock(slot);
    if (!superblock.ok())
        return 0;
    CW_ASSERT(identity.ok() && identity->generation == superblock->generation);
    CW_ASSERT(claimed_superblock_bytes(slot) <= slot.size());
    for (const MemberRecord& record : superblock->members) {
        check_member(record);
        CW_ASSERT(superblock->member(record.id) == &record);
    }
    CW_ASSERT(max_column_bytes(superblock->members[0].slot_bytes) >= superblock->members[0].slot_bytes);
    CW_ASSERT(!to_text(*superblock).empty());
    const std::vector<std::byte> encoded = encode_superblock(*superblock);
    const Result<Superblock> again = decode_superblock(encoded);
    CW_ASSERT(again.ok() && encode_superblock(*again) == encoded);
    return 0;
}
