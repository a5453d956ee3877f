// SPDX-License-Identifier: MIT
#include "fs/maintain/scrub_heads.h"

#include <algorithm>

#include "base/buffer.h"
#include "base/log.h"
#include "device/superblock_store.h"

namespace cowraid {

namespace {

// Bytes of a log in one piece.
constexpr uint64_t kLogPieceBytes = 4 * kMiB;
// What is read again where a piece cannot be read: who waits for the end of a scrub waits for a bad device.
constexpr uint64_t kLogPartBytes = 64 * kKiB;

// The commit thread reads them: no superblock is written meanwhile.
class HeadOrder final : public CommitOrder {
public:
    HeadOrder(Store& store, ScrubMode mode) : store_(store), mode_(mode) { }

    Status apply(std::string&) override
    {
        for (const MemberRecord& record : store_.volume.superblock().members)
            if (BlockDevice* const device = store_.volume.members().device(record.id); device != nullptr)
                examine(*device, record);
        // The next superblock goes to another slot: a mount must not find these.
        return mode_ == ScrubMode::kRepair ? erase_slots(store_.volume.members(), damaged_) : Status();
    }

    uint64_t copies = 0, bad = 0;

private:
    void examine(BlockDevice& device, const MemberRecord& record)
    {
        const Superblock& superblock = store_.volume.superblock();
        DamagedSlots damaged{.member = record.id};
        for (uint32_t ring = 0; ring < kSuperblockRingCount; ++ring) {
            const char* const fault = superblock_copy_fault(device, superblock, record, ring);
            note(record, "superblock", fault);
            if (fault != nullptr)
                damaged.slots[ring] = 1u << superblock.generation.value % kSuperblockSlotCount;
        }
        // One good copy at least stays.
        if (std::count(damaged.slots.begin(), damaged.slots.end(), 0u) > 0)
            damaged_.push_back(damaged);
        const char* const map_fault = map_copy_fault(device, superblock, record);
        note(record, "block-group map", map_fault);
        if (map_fault != nullptr && mode_ == ScrubMode::kRepair)
            store_.volume.renew_map();
    }
    void note(const MemberRecord& record, const char* what, const char* fault)
    {
        ++copies;
        if (fault == nullptr)
            return;
        ++bad;
        store_.volume.members().count(record.id, MemberCounter::kSuperblock);
        CW_LOG_WARNING("%s: its copy of the %s %s", store_.volume.members().name(record.id).c_str(), what,
                       fault);
    }

    Store& store_;
    const ScrubMode mode_;
    std::vector<DamagedSlots> damaged_;
};

struct LogPiece {
    MemberId member;
    DeviceOffset offset;
    uint64_t bytes = 0;
};

std::vector<LogPiece> log_pieces(Store& store)
{
    std::vector<LogPiece> pieces;
    const auto add = [&](MemberId member, uint64_t offset, uint64_t bytes) {
        for (uint64_t at = 0; at < bytes; at += kLogPieceBytes)
            pieces.push_back({member, {offset + at}, std::min(kLogPieceBytes, bytes - at)});
    };
    for (const MemberRecord& record : store.volume.member_table()) {
        if (store.volume.members().device(record.id) == nullptr)
            continue;
        add(record.id, record.intent_log_offset, record.intent_log_bytes);
        add(record.id, record.fsync_log_offset, record.fsync_log_bytes);
    }
    return pieces;
}

// Parts of it that cannot be read.
uint64_t unreadable_parts(BlockDevice& device, const LogPiece& piece)
{
    AlignedBuffer buffer(piece.bytes);
    if (read_device(device, piece.offset, buffer.span()).ok())
        return 0;
    uint64_t parts = 0;
    for (uint64_t at = 0; at < piece.bytes; at += kLogPartBytes) {
        const std::span<std::byte> part = buffer.span().first(std::min(kLogPartBytes, piece.bytes - at));
        parts += read_device(device, piece.offset + at, part).ok() ? 0 : 1;
    }
    return parts;
}

}  // namespace

uint32_t head_piece_count(Store& store)
{
    return static_cast<uint32_t>(1 + log_pieces(store).size());
}

uint64_t head_bytes(Store& store)
{
    uint64_t bytes = 0;
    for (const LogPiece& piece : log_pieces(store))
        bytes += piece.bytes;
    return bytes;
}

void scrub_head(Store& store, CommitOrders& orders, uint32_t number, ScrubMode mode, ScrubReport& report,
                ScrubWalkCounts& counts)
{
    if (number == 0) {
        Ref<HeadOrder> order(new HeadOrder(store, mode));
        std::string why;
        // Refused only where nothing is written any more.
        orders.carry_out(Ref<CommitOrder>(order.get()), why).ignore();
        counts.heads += order->copies;
        (mode == ScrubMode::kRepair ? report.repaired : report.unrepaired) += order->bad;
        return;
    }
    const std::vector<LogPiece> pieces = log_pieces(store);
    if (number > pieces.size())
        return;
    const LogPiece& piece = pieces[number - 1];
    BlockDevice* const device = store.volume.members().device(piece.member);
    const uint64_t bad = device == nullptr ? 0 : unreadable_parts(*device, piece);
    counts.head_bytes += piece.bytes;
    report.unrepaired += bad;
    if (bad == 0)
        return;
    store.volume.members().count(piece.member, MemberCounter::kReadErrors);
    CW_LOG_WARNING("%s: %llu parts of its logs cannot be read",
                   store.volume.members().name(piece.member).c_str(), static_cast<unsigned long long>(bad));
}

}  // namespace cowraid
