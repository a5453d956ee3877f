// SPDX-License-Identifier: MIT
// Reading the superblock rings of one device, whatever is on it.
#include <algorithm>
#include <bitset>
#include <cstring>
#include <optional>

#include "base/buffer.h"
#include "device/lineage.h"
#include "device/superblock_store.h"
#include "format/feature_table.h"

namespace cowraid {

namespace {

constexpr uint32_t kRingBytes = kSuperblockSlotCount * kSuperblockSlotBytes;
constexpr uint32_t kBlocksPerRing = kRingBytes / kBlockBytes;
constexpr uint32_t kBlocksPerSlot = kSuperblockSlotBytes / kBlockBytes;
// What is read of a slot at first: holds the superblock of a volume of up to two dozen members.
constexpr uint32_t kSlotHeadBytes = 8 * kKiB;

// The bytes of one ring, as far as they were read; blocks that could not be are zero and marked.
struct RingBytes {
    AlignedBuffer buffer{kRingBytes};
    uint32_t slot_bytes[kSuperblockSlotCount]{};
    std::bitset<kBlocksPerRing> unreadable;

    [[nodiscard]] std::span<const std::byte> slot(uint32_t index) const
    {
        return buffer.span().subspan(size_t{index} * kSuperblockSlotBytes, slot_bytes[index]);
    }
    // Slots of whose head nothing could be read.
    [[nodiscard]] size_t unreadable_heads() const
    {
        size_t count = 0;
        for (uint32_t index = 0; index < kSuperblockSlotCount; ++index)
            count += unreadable[index * kBlocksPerSlot] ? 1 : 0;
        return count;
    }
    [[nodiscard]] bool slot_unreadable(uint32_t index) const
    {
        for (uint32_t block = 0; block < kBlocksPerSlot; ++block) {
            if (unreadable[index * kBlocksPerSlot + block])
                return true;
        }
        return false;
    }
};

enum class SlotState : uint8_t { kBlank, kValid, kUnsupported, kDamaged };

struct Slot {
    uint32_t ring;
    uint32_t index;
    SlotState state;
    std::optional<Superblock> superblock;  // kValid
    SuperblockIdentity identity;  // kUnsupported
};

// One part of a slot.
struct SlotRead {
    uint32_t ring;
    uint32_t slot;
    uint32_t begin;  // bytes in the slot
    uint32_t bytes;
};

void read_block_by_block(BlockDevice& device, const SlotRead& part, RingBytes& ring)
{
    for (uint32_t at = part.begin; at < part.begin + part.bytes; at += kBlockBytes) {
        const uint32_t in_ring = part.slot * kSuperblockSlotBytes + at;
        const std::span<std::byte> block = ring.buffer.span().subspan(in_ring, kBlockBytes);
        if (read_device(device, {kSuperblockRingOffset[part.ring] + in_ring}, block).ok())
            continue;
        ring.unreadable.set(in_ring / kBlockBytes);
        std::memset(block.data(), 0, block.size());
    }
}

// Reads all parts as one batch; where one fails, block by block, so that a bad sector costs one slot and no
// more.
Status read_parts(BlockDevice& device, const std::vector<SlotRead>& parts, std::span<RingBytes> rings)
{
    std::vector<iovec> vectors;
    std::vector<IoRequest> requests;
    vectors.reserve(parts.size());
    for (const SlotRead& part : parts) {
        const uint32_t in_ring = part.slot * kSuperblockSlotBytes + part.begin;
        vectors.push_back({rings[part.ring].buffer.data() + in_ring, part.bytes});
        requests.push_back({.kind = IoKind::kRead,
                            .device = &device,
                            .offset = {kSuperblockRingOffset[part.ring] + in_ring},
                            .vectors = {&vectors.back(), 1}});
    }
    run_io(requests);
    for (size_t index = 0; index < parts.size(); ++index) {
        if (requests[index].result.err() == Err::kMemberGone)
            return Err::kMemberGone;
        rings[parts[index].ring].slot_bytes[parts[index].slot] = parts[index].begin + parts[index].bytes;
        if (!requests[index].result.ok())
            read_block_by_block(device, parts[index], rings[parts[index].ring]);
    }
    return {};
}

// The head of every slot, and the rest of those that claim to be longer: slots are large for the sake of
// volumes with hundreds of members.
Status load_rings(BlockDevice& device, std::span<RingBytes> rings)
{
    if (device.size_bytes() < kMinHeadBytes)
        return Err::kNotFound;
    std::vector<SlotRead> parts;
    for (uint32_t ring = 0; ring < kSuperblockRingCount; ++ring)
        for (uint32_t slot = 0; slot < kSuperblockSlotCount; ++slot)
            parts.push_back({ring, slot, 0, kSlotHeadBytes});
    CW_TRY(read_parts(device, parts, rings));
    if (rings[0].unreadable_heads() + rings[1].unreadable_heads() == parts.size())
        return Err::kIo;
    std::vector<SlotRead> rest;
    for (const SlotRead& head : parts) {
        const uint32_t claimed = claimed_superblock_bytes(rings[head.ring].slot(head.slot));
        if (claimed > kSlotHeadBytes)
            rest.push_back({head.ring, head.slot, kSlotHeadBytes,
                            static_cast<uint32_t>(round_up(claimed, kBlockBytes)) - kSlotHeadBytes});
    }
    return read_parts(device, rest, rings);
}

bool all_zero(std::span<const std::byte> bytes)
{
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0}; });
}

Slot classify(uint32_t ring, uint32_t index, const RingBytes& bytes)
{
    Slot slot{.ring = ring, .index = index, .state = SlotState::kDamaged};
    Result<Superblock> decoded = decode_superblock(bytes.slot(index));
    if (decoded.ok()) {
        // A slot that belongs elsewhere in the ring was misdirected.
        if (decoded->generation.value % kSuperblockSlotCount == index) {
            slot.state = SlotState::kValid;
            slot.superblock = decoded.take();
        }
    } else if (decoded.err() == Err::kUnsupported) {
        slot.state = SlotState::kUnsupported;
        if (const Result<SuperblockIdentity> identity = peek_superblock(bytes.slot(index)); identity.ok())
            slot.identity = *identity;
    } else if (all_zero(bytes.slot(index)) && !bytes.slot_unreadable(index)) {
        slot.state = SlotState::kBlank;
    }
    return slot;
}

Result<std::vector<Slot>> read_slots(BlockDevice& device, bool& read_error)
{
    RingBytes rings[kSuperblockRingCount];
    CW_TRY(load_rings(device, rings));
    std::vector<Slot> slots;
    for (uint32_t ring = 0; ring < kSuperblockRingCount; ++ring) {
        read_error = read_error || rings[ring].unreadable.any();
        for (uint32_t index = 0; index < kSuperblockSlotCount; ++index)
            slots.push_back(classify(ring, index, rings[ring]));
    }
    return slots;
}

// Of two volumes the one created last counts.
bool newer(const Superblock& a, const Superblock& b)
{
    if (a.volume_uuid != b.volume_uuid && a.created_seconds != b.created_seconds)
        return a.created_seconds > b.created_seconds;
    return newer_commit(a, b);
}

const Superblock* newest_of(const std::vector<Slot>& slots)
{
    const Superblock* best = nullptr;
    for (const Slot& slot : slots) {
        if (slot.superblock && (best == nullptr || newer(*slot.superblock, *best)))
            best = &*slot.superblock;
    }
    return best;
}

// Whether an unsupported slot outranks the best one that this version can read.
bool unsupported_wins(const Slot& slot, const Superblock* best)
{
    return slot.state == SlotState::kUnsupported &&
           (best == nullptr ||
            (slot.identity.volume_uuid == best->volume_uuid && slot.identity.generation > best->generation));
}

}  // namespace

Result<RingReading> read_rings(BlockDevice& device)
{
    RingReading reading;
    CW_ASSIGN(std::vector<Slot> slots, read_slots(device, reading.read_error));
    const Superblock* best = newest_of(slots);
    for (const Slot& slot : slots) {
        if (unsupported_wins(slot, best))
            return Err::kUnsupported;
    }
    if (best == nullptr)
        return Err::kNotFound;
    const Superblock newest = *best;
    const MemberRecord* const line = newest.member(newest.member_id);
    const auto is_own = [&](const Superblock& other) {
        const MemberRecord* const own = other.member(other.member_id);
        return line != nullptr && own != nullptr && own->uuid == line->uuid;
    };
    for (Slot& slot : slots) {
        if (slot.state == SlotState::kDamaged) {
            reading.damaged_slots += 1;
            reading.damaged_mask[slot.ring] |= 1u << slot.index;
        }
        if (!slot.superblock || slot.superblock->volume_uuid != newest.volume_uuid)
            continue;
        if (slot.superblock->member_id == newest.member_id)
            reading.valid.push_back(std::move(*slot.superblock));
        else if (is_own(*slot.superblock))
            reading.before.push_back(std::move(*slot.superblock));
    }
    const auto same = [](const Superblock& a, const Superblock& b) {
        return a.generation == b.generation;
    };
    for (std::vector<Superblock>* const list : {&reading.valid, &reading.before}) {
        std::stable_sort(list->begin(), list->end(), newer_commit);
        list->erase(std::unique(list->begin(), list->end(), same), list->end());
    }
    return reading;
}

std::string unsupported_reason(BlockDevice& device)
{
    bool read_error = false;
    const Result<std::vector<Slot>> slots = read_slots(device, read_error);
    if (!slots.ok())
        return err_text(slots.err());
    const SuperblockIdentity* newest = nullptr;
    for (const Slot& slot : *slots) {
        if (slot.state == SlotState::kUnsupported &&
            (newest == nullptr || slot.identity.generation > newest->generation))
            newest = &slot.identity;
    }
    if (newest == nullptr)
        return "nothing unsupported";
    const bool older = newest->version < kFormatVersion;
    const std::string hint =
        older ? ": use the version of cowraid that made it" : ": use a newer version of cowraid";
    if (newest->version != kFormatVersion)
        return "format version " + std::to_string(newest->version) + ", this program knows " +
               std::to_string(kFormatVersion) + hint;
    const uint64_t unknown = unhandled_features(FeatureClass::kRefuse, newest->incompat_features);
    return "features " + feature_names(FeatureClass::kRefuse, unknown) + hint;
}

Status erase_rings(BlockDevice& device)
{
    AlignedBuffer zeros = AlignedBuffer::zeroed(kRingBytes);
    const iovec vector{zeros.data(), zeros.size()};
    std::vector<IoRequest> writes;
    for (const uint64_t offset : kSuperblockRingOffset)
        writes.push_back(
            {.kind = IoKind::kWrite, .device = &device, .offset = {offset}, .vectors = {&vector, 1}});
    run_io(writes);
    for (const IoRequest& write : writes)
        CW_TRY(write.result);
    IoRequest flush{.kind = IoKind::kFlush, .device = &device};
    run_io({&flush, 1});
    return flush.result;
}

}  // namespace cowraid
