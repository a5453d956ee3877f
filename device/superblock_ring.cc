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

// The bytes of one ring; blocks that could not be read are zero and marked.
struct RingBytes {
    AlignedBuffer buffer{kRingBytes};
    std::bitset<kBlocksPerRing> unreadable;

    [[nodiscard]] std::span<const std::byte> slot(uint32_t index) const
    {
        return buffer.span().subspan(size_t{index} * kSuperblockSlotBytes, kSuperblockSlotBytes);
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

void read_block_by_block(BlockDevice& device, uint64_t offset, RingBytes& ring)
{
    std::vector<iovec> vectors;
    std::vector<IoRequest> requests;
    vectors.reserve(kBlocksPerRing);
    for (uint32_t block = 0; block < kBlocksPerRing; ++block) {
        vectors.push_back({ring.buffer.data() + size_t{block} * kBlockBytes, kBlockBytes});
        requests.push_back({.kind = IoKind::kRead,
                            .device = &device,
                            .offset = {offset + uint64_t{block} * kBlockBytes},
                            .vectors = {&vectors.back(), 1}});
    }
    run_io(requests);
    for (uint32_t block = 0; block < kBlocksPerRing; ++block) {
        if (requests[block].result.ok())
            continue;
        ring.unreadable.set(block);
        std::memset(vectors[block].iov_base, 0, kBlockBytes);
    }
}

// One read per ring; where that fails, block by block, so that a bad sector costs one slot and no more.
Status load_rings(BlockDevice& device, std::span<RingBytes> rings)
{
    if (device.size_bytes() < kMinHeadBytes)
        return Err::kNotFound;
    iovec vectors[kSuperblockRingCount];
    IoRequest requests[kSuperblockRingCount];
    for (uint32_t ring = 0; ring < kSuperblockRingCount; ++ring) {
        vectors[ring] = {rings[ring].buffer.data(), kRingBytes};
        requests[ring] = {.kind = IoKind::kRead,
                          .device = &device,
                          .offset = {kSuperblockRingOffset[ring]},
                          .vectors = {&vectors[ring], 1}};
    }
    run_io(requests);
    bool any = false;
    for (uint32_t ring = 0; ring < kSuperblockRingCount; ++ring) {
        if (requests[ring].result.err() == Err::kMemberGone)
            return Err::kMemberGone;
        if (!requests[ring].result.ok())
            read_block_by_block(device, kSuperblockRingOffset[ring], rings[ring]);
        any = any || !rings[ring].unreadable.all();
    }
    return any ? Status() : Status(Err::kIo);
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
    const Uuid volume = best->volume_uuid;
    const MemberId member = best->member_id;
    for (Slot& slot : slots) {
        if (slot.state == SlotState::kDamaged) {
            reading.damaged_slots += 1;
            reading.damaged_mask[slot.ring] |= 1u << slot.index;
        }
        if (slot.superblock && slot.superblock->volume_uuid == volume && slot.superblock->member_id == member)
            reading.valid.push_back(std::move(*slot.superblock));
    }
    std::stable_sort(reading.valid.begin(), reading.valid.end(), newer_commit);
    const auto same = [](const Superblock& a, const Superblock& b) {
        return a.generation == b.generation;
    };
    reading.valid.erase(std::unique(reading.valid.begin(), reading.valid.end(), same), reading.valid.end());
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
    if (newest->version > kFormatVersion)
        return "format version " + std::to_string(newest->version) + ", this program knows " +
               std::to_string(kFormatVersion);
    const uint64_t unknown = unhandled_features(FeatureClass::kRefuse, newest->incompat_features);
    return "features " + feature_names(FeatureClass::kRefuse, unknown);
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
