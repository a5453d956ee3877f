// SPDX-License-Identifier: MIT
#include "device/superblock_store.h"

#include <algorithm>
#include <cstring>

#include "base/buffer.h"
#include "base/log.h"
#include "device/member_batch.h"

namespace cowraid {

namespace {

// After a step that failed nothing is written any more.
Status run_step(MemberSet& members, MemberBatch& batch, const char* what)
{
    return members.stopped() ? Err::kTooManyFaults : batch.run(what);
}

AlignedBuffer aligned_copy(std::span<const std::byte> bytes)
{
    AlignedBuffer buffer(bytes.size());
    std::memcpy(buffer.data(), bytes.data(), bytes.size());
    return buffer;
}

}  // namespace

Status write_superblocks(MemberSet& members, const Superblock& superblock, std::span<const MemberId> only)
{
    const uint64_t slot = superblock.generation.value % kSuperblockSlotCount;
    std::vector<AlignedBuffer> copies;  // moving a buffer leaves its bytes where they are
    MemberBatch batch(members, MemberCounter::kWriteErrors);
    Superblock own = superblock;
    for (const MemberRecord& record : superblock.members) {
        const bool wanted = only.empty() || std::find(only.begin(), only.end(), record.id) != only.end();
        if (!wanted || members.device(record.id) == nullptr)
            continue;
        own.member_id = record.id;
        const AlignedBuffer& copy = copies.emplace_back(aligned_copy(encode_superblock(own)));
        for (const uint64_t ring : kSuperblockRingOffset)
            batch.add_write(record.id, {ring + slot * kSuperblockSlotBytes}, copy.span());
    }
    return run_step(members, batch, "superblock write");
}

Status write_spare(BlockDevice& device, const Superblock& superblock, MemberId id)
{
    Superblock own = superblock;
    own.member_id = id;
    CW_ASSERT(own.on_spare());
    const std::vector<std::byte> bytes = encode_superblock(own);
    AlignedBuffer buffer(bytes.size());
    std::copy(bytes.begin(), bytes.end(), buffer.data());
    for (const uint64_t ring : kSuperblockRingOffset)
        CW_TRY(write_device(device,
                            {ring + own.generation.value % kSuperblockSlotCount * kSuperblockSlotBytes},
                            buffer.span()));
    IoRequest flush{.kind = IoKind::kFlush, .device = &device};
    run_io({&flush, 1});
    return flush.result;
}

Status move_spare(BlockDevice& device, const Superblock& superblock, MemberId id)
{
    CW_ASSIGN(const RingReading own, read_rings(device));
    const auto slot_of = [](const Superblock& one) {
        return one.generation.value % kSuperblockSlotCount;
    };
    return slot_of(own.valid.front()) == slot_of(superblock) ? Status() : write_spare(device, superblock, id);
}

Status write_group_map(MemberSet& members, const Superblock& superblock, std::span<const std::byte> bytes,
                       uint32_t place)
{
    CW_ASSERT(place < 2 && !bytes.empty() && bytes.size() % kBlockBytes == 0);
    AlignedBuffer copy = aligned_copy(bytes);
    MemberBatch batch(members, MemberCounter::kWriteErrors);
    for (const MemberRecord& record : superblock.members) {
        if (batch.add_write(record.id, {record.map_offset[place]}, copy.span()) &&
            bytes.size() > record.map_bytes)
            return Err::kNoSpace;
    }
    return run_step(members, batch, "block-group map write");
}

Status erase_slots(MemberSet& members, std::span<const DamagedSlots> damaged)
{
    AlignedBuffer zeros(kSuperblockSlotBytes);
    std::memset(zeros.data(), 0, zeros.size());
    MemberBatch batch(members, MemberCounter::kWriteErrors);
    for (const DamagedSlots& entry : damaged) {
        for (uint32_t ring = 0; ring < kSuperblockRingCount; ++ring) {
            for (uint64_t slot = 0; slot < kSuperblockSlotCount; ++slot) {
                const DeviceOffset offset{kSuperblockRingOffset[ring] + slot * kSuperblockSlotBytes};
                if ((entry.slots[ring] >> slot & 1) != 0)
                    batch.add_write(entry.member, offset, zeros.span());
            }
        }
    }
    return run_step(members, batch, "superblock slot");
}

Status rewrite_commit(MemberSet& members, const Superblock& superblock, const GroupMap& map,
                      std::span<const MemberId> only)
{
    MapRef ref = superblock.map;
    const std::vector<std::byte> bytes = encode_group_map(map, superblock.volume_uuid, ref);
    if (ref.checksum != superblock.map.checksum || ref.bytes != superblock.map.bytes)
        return Err::kCorrupt;
    CW_TRY(write_group_map(members, superblock, bytes, ref.place));
    CW_TRY(flush_members(members));
    CW_TRY(write_superblocks(members, superblock, only));
    return flush_members(members);
}

Result<GroupMap> read_group_map(MemberSet& members, const Superblock& superblock)
{
    const MapRef& ref = superblock.map;
    AlignedBuffer buffer(ref.bytes);
    Status failure = Err::kMemberGone;
    // Copies of members that missed commits may rightly be old: asked last, not counted as faults.
    for (const bool current : {true, false}) {
        for (const MemberRecord& record : superblock.members) {
            BlockDevice* device = members.device(record.id);
            if (device == nullptr || (record.state == MemberState::kPresent) != current)
                continue;
            if (!read_device(*device, {record.map_offset[ref.place]}, buffer.span()).ok()) {
                failure = Err::kIo;
                members.count(record.id, MemberCounter::kReadErrors);
                continue;
            }
            Result<GroupMap> map = decode_group_map(buffer.span(), ref, superblock);
            if (map.ok())
                return map;
            failure = map.status();
            if (current)
                members.count(record.id, MemberCounter::kSuperblock);
            CW_LOG_WARNING("member %u (%s): its copy of the block-group map is bad", record.id.value,
                           device->name());
        }
    }
    return failure;
}

const char* superblock_copy_fault(BlockDevice& device, const Superblock& chosen, const MemberRecord& record,
                                  uint32_t ring)
{
    const uint64_t slot = chosen.generation.value % kSuperblockSlotCount;
    AlignedBuffer buffer(kSuperblockSlotBytes);
    if (!read_device(device, {kSuperblockRingOffset[ring] + slot * kSuperblockSlotBytes}, buffer.span()).ok())
        return "cannot be read";
    const Result<Superblock> copy = decode_superblock(buffer.span());
    if (!copy.ok())
        return "is damaged, or torn by a power cut";
    if (copy->volume_uuid != chosen.volume_uuid || copy->member_id != record.id)
        return "belongs to another member";
    if (copy->generation != chosen.generation)
        return "is of an older commit";
    const MapRef& map = copy->map;
    const bool same_map = map.generation == chosen.map.generation && map.checksum == chosen.map.checksum &&
                          map.bytes == chosen.map.bytes && map.place == chosen.map.place;
    return copy->root == chosen.root && same_map ? nullptr : "contradicts those of other members";
}

bool power_cut_explains(BlockDevice& device, const Superblock& chosen, uint32_t ring)
{
    const auto has = [&](uint64_t generation) -> Result<bool> {
        AlignedBuffer buffer(kSuperblockSlotBytes);
        const uint64_t slot = generation % kSuperblockSlotCount;
        CW_TRY(
            read_device(device, {kSuperblockRingOffset[ring] + slot * kSuperblockSlotBytes}, buffer.span()));
        const Result<Superblock> copy = decode_superblock(buffer.span());
        return copy.ok() && copy->volume_uuid == chosen.volume_uuid && copy->generation.value == generation;
    };
    const Result<bool> newest = has(chosen.generation.value);
    const Result<bool> before = has(chosen.generation.value - 1);
    return !chosen.unmounted && newest.ok() && !*newest && before.ok() && *before;
}

const char* map_copy_fault(BlockDevice& device, const Superblock& chosen, const MemberRecord& record)
{
    AlignedBuffer buffer(chosen.map.bytes);
    if (chosen.map.bytes > record.map_bytes ||
        !read_device(device, {record.map_offset[chosen.map.place]}, buffer.span()).ok())
        return "cannot be read";
    return decode_group_map(buffer.span(), chosen.map, chosen).ok() ? nullptr : "is damaged";
}

Status flush_members(MemberSet& members)
{
    MemberBatch batch(members, MemberCounter::kFlushErrors);
    for (const MemberId id : members.ids())
        batch.add(id, {.kind = IoKind::kFlush});
    return run_step(members, batch, "flush");
}

}  // namespace cowraid
