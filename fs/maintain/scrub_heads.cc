// SPDX-License-Identifier: MIT
#include "fs/maintain/scrub_heads.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/buffer.h"
#include "base/log.h"
#include "device/superblock_store.h"

namespace cowraid {

namespace {

// Bytes of a log in one piece.
constexpr uint64_t kLogPieceBytes = 4 * kMiB;
// What is read again where a piece cannot be read: who waits for the end of a scrub waits for a bad device.
constexpr uint64_t kLogPartBytes = 64 * kKiB;

// How often the copies are looked at that commits or members overtake meanwhile.
constexpr uint32_t kHeadLooksMax = 3;

// A copy that is not as it must be.
struct BadHead {
    MemberId member;
    const BlockDevice* device = nullptr;
    std::optional<uint32_t> ring;  // of a superblock; none: it is the map
    const char* fault = nullptr;
};

// The superblock of a moment between two commits, and who has it.
class HeadSnapshot final : public CommitOrder {
public:
    explicit HeadSnapshot(Volume& volume) : volume_(volume) { }

    Status apply(std::string&) override
    {
        superblock_ = volume_.superblock();
        for (const MemberRecord& record : superblock_.members)
            if (BlockDevice* const device = volume_.members().device(record.id); device != nullptr)
                holders_.push_back({record, device});
        return {};
    }
    [[nodiscard]] bool changes() const override { return false; }

    // Reads all copies, beside commits: those write to other slots and to the other place of the map.
    [[nodiscard]] std::vector<BadHead> examine() const
    {
        std::vector<BadHead> bad;
        const auto note = [&](const Holder& holder, std::optional<uint32_t> ring, const char* fault) {
            if (fault != nullptr)
                bad.push_back({holder.record.id, holder.device, ring, fault});
        };
        for (const Holder& holder : holders_) {
            for (uint32_t ring = 0; ring < kSuperblockRingCount; ++ring)
                note(holder, ring, superblock_copy_fault(*holder.device, superblock_, holder.record, ring));
            note(holder, {}, map_copy_fault(*holder.device, superblock_, holder.record));
        }
        return bad;
    }

    // Commit thread: nothing was written in the place of that copy since, and the member has that device.
    [[nodiscard]] bool holds(const BadHead& bad) const
    {
        const Superblock& now = volume_.superblock();
        const uint64_t commits = now.generation.value - superblock_.generation.value;
        // Maps go to both places in turn, at most one with a commit.
        const bool map_stays = now.map.generation == superblock_.map.generation ||
                               (now.map.place != superblock_.map.place && commits <= 2);
        return volume_.members().device(bad.member) == bad.device &&
               (bad.ring ? commits + 1 < kSuperblockSlotCount : map_stays);
    }
    [[nodiscard]] uint64_t copies() const { return holders_.size() * (kSuperblockRingCount + 1); }
    [[nodiscard]] uint32_t slot() const
    {
        return static_cast<uint32_t>(superblock_.generation.value % kSuperblockSlotCount);
    }

private:
    struct Holder {
        MemberRecord record;
        BlockDevice* device;
    };

    Volume& volume_;
    Superblock superblock_;
    std::vector<Holder> holders_;
};

// Counts what is bad. Mends it with the next superblock, which goes to another slot.
class MendHeads final : public CommitOrder {
public:
    MendHeads(Volume& volume, ScrubMode mode, Ref<HeadSnapshot> seen, std::vector<BadHead> bad)
        : volume_(volume), mode_(mode), seen_(std::move(seen)), bad_(std::move(bad))
    {
    }

    // kBusy: what was read may be out of date.
    Status apply(std::string&) override
    {
        if (!std::all_of(bad_.begin(), bad_.end(), [&](const BadHead& bad) { return seen_->holds(bad); }))
            return Err::kBusy;
        MemberSet& members = volume_.members();
        std::map<MemberId, DamagedSlots> damaged;
        for (const BadHead& bad : bad_) {
            const char* const what = bad.ring ? "superblock" : "block-group map";
            members.count(bad.member, MemberCounter::kSuperblock);
            CW_LOG_WARNING("%s: its copy of the %s %s", members.name(bad.member).c_str(), what, bad.fault);
            if (bad.ring) {
                damaged[bad.member].member = bad.member;
                damaged[bad.member].slots[*bad.ring] = 1u << seen_->slot();
            } else if (mode_ == ScrubMode::kRepair) {
                volume_.renew_map();
            }
        }
        // A mount must not find them. One good copy at least stays.
        std::vector<DamagedSlots> erased;
        for (const auto& [id, slots] : damaged)
            if (std::count(slots.slots.begin(), slots.slots.end(), 0u) > 0)
                erased.push_back(slots);
        return mode_ == ScrubMode::kRepair ? erase_slots(members, erased) : Status();
    }
    [[nodiscard]] bool changes() const override { return mode_ == ScrubMode::kRepair; }

private:
    Volume& volume_;
    const ScrubMode mode_;
    const Ref<HeadSnapshot> seen_;
    const std::vector<BadHead> bad_;
};

// Bad devices take their time, so that the commit thread reads nothing.
void scrub_superblocks(Store& store, CommitOrders& orders, ScrubMode mode, ScrubReport& report,
                       ScrubWalkCounts& counts)
{
    std::string ignored;
    for (uint32_t look = 0; look < kHeadLooksMax; ++look) {
        const Ref<HeadSnapshot> seen = make_ref<HeadSnapshot>(store.volume);
        // Refused only where nothing is written any more.
        if (!orders.carry_out(Ref<CommitOrder>(seen.get()), ignored).ok())
            return;
        std::vector<BadHead> bad = seen->examine();
        const uint64_t count = bad.size();
        Status status;
        if (count > 0)
            status = orders.carry_out(
                Ref<CommitOrder>(new MendHeads(store.volume, mode, seen, std::move(bad))), ignored);
        if (status.err() == Err::kBusy)
            continue;
        counts.heads += seen->copies();
        (mode == ScrubMode::kRepair ? report.repaired : report.unrepaired) += count;
        return;
    }
    CW_LOG_WARNING("superblocks and maps changed too fast to be verified; the next scrub looks again");
}

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
    if (number == 0)
        return scrub_superblocks(store, orders, mode, report, counts);
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
