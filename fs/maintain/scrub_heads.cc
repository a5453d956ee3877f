// SPDX-License-Identifier: MIT
#include "fs/maintain/scrub_heads.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <utility>

#include "base/buffer.h"
#include "base/log.h"
#include "device/superblock_store.h"
#include "journal/fsync_log.h"

namespace cowraid {

namespace {

// Bytes of a log in one piece, and read in one turn.
constexpr uint64_t kLogPieceBytes = 256 * kKiB;
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
    [[nodiscard]] std::vector<BadHead> examine(WorkTurns& turns) const
    {
        std::vector<BadHead> bad;
        const auto note = [&](const Holder& holder, std::optional<uint32_t> ring, const char* fault) {
            if (fault != nullptr)
                bad.push_back({holder.record.id, holder.device, ring, fault});
        };
        for (const Holder& holder : holders_) {
            turns.spend(kSuperblockRingCount * kSeekBytes + superblock_.map.bytes, kRoomForSingles);
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
void scrub_superblocks(Store& store, CommitOrders& orders, ScrubMode mode, WorkTurns& turns,
                       ScrubReport& report, ScrubWalkCounts& counts)
{
    std::string ignored;
    for (uint32_t look = 0; look < kHeadLooksMax; ++look) {
        const Ref<HeadSnapshot> seen = make_ref<HeadSnapshot>(store.volume);
        // Refused only where nothing is written any more.
        if (!orders.carry_out(Ref<CommitOrder>(seen.get()), ignored).ok())
            return;
        std::vector<BadHead> bad = seen->examine(turns);
        turns.pause();
        const uint64_t count = bad.size();
        ScrubbedMembers found;
        for (const BadHead& head : bad)
            ++found[head.member][ScrubMemberNumber::kHeads];
        Status status;
        if (count > 0)
            status = orders.carry_out(
                Ref<CommitOrder>(new MendHeads(store.volume, mode, seen, std::move(bad))), ignored);
        if (status.err() == Err::kBusy)
            continue;
        for (auto& [member, numbers] : found)
            if (mode == ScrubMode::kRepair && status.ok())
                numbers[ScrubMemberNumber::kCorrected] += numbers[ScrubMemberNumber::kHeads];
        counts.heads += seen->copies();
        report.members += found;
        (mode == ScrubMode::kRepair && status.ok() ? report.repaired : report.unrepaired) += count;
        return;
    }
    CW_LOG_WARNING("superblocks and maps changed too fast to be verified; the next scrub looks again");
}

struct LogPiece {
    MemberId member;
    LogKind log;
    DeviceOffset offset;
    uint64_t bytes = 0;
};

// Whole logs of members in service.
std::vector<LogPiece> whole_logs(Store& store)
{
    std::vector<LogPiece> logs;
    for (const MemberRecord& record : store.volume.member_table()) {
        if (store.volume.members().device(record.id) == nullptr)
            continue;
        logs.push_back({record.id, LogKind::kIntent, {record.intent_log_offset}, record.intent_log_bytes});
        logs.push_back({record.id, LogKind::kFsync, {record.fsync_log_offset}, record.fsync_log_bytes});
    }
    return logs;
}

// Of all logs, by number. None: there are fewer.
std::optional<LogPiece> log_piece(Store& store, uint64_t number)
{
    for (const LogPiece& log : whole_logs(store)) {
        const uint64_t at = number * kLogPieceBytes;
        if (at < log.bytes)
            return LogPiece{log.member, log.log, log.offset + at, std::min(kLogPieceBytes, log.bytes - at)};
        number -= divide_up(log.bytes, kLogPieceBytes);
    }
    return {};
}

// What `act` says of the log that the part is of; without one, false.
template <typename Act> bool with_log(Store& store, const LogPiece& part, Act act)
{
    IntentLog* const intents = store.volume.intent_log();
    FsyncLog* const records = store.driver->records();
    if (part.log == LogKind::kIntent)
        return intents != nullptr && act(*intents);
    return records != nullptr && act(*records);
}

// Parts of it that cannot be read.
std::vector<LogPiece> unreadable_parts(BlockDevice& device, const LogPiece& piece)
{
    std::vector<LogPiece> bad;
    AlignedBuffer buffer(piece.bytes);
    if (read_device(device, piece.offset, buffer.span()).ok())
        return bad;
    for (uint64_t at = 0; at < piece.bytes; at += kLogPartBytes) {
        const LogPiece part{piece.member, piece.log, piece.offset + at,
                            std::min(kLogPartBytes, piece.bytes - at)};
        if (!read_device(device, part.offset, buffer.span().first(part.bytes)).ok())
            bad.push_back(part);
    }
    return bad;
}

// Writes parts of a log anew of which nothing counts after the commit. Nobody appends there meanwhile.
class MendParts final : public CommitOrder {
public:
    MendParts(Store& store, BlockDevice& device, std::span<const LogPiece> parts)
        : CommitOrder(When::kAfter), store_(store), device_(device), parts_(parts.begin(), parts.end())
    {
    }

    Status apply(std::string&) override
    {
        for (const LogPiece& part : parts_) {
            if (store_.volume.members().device(part.member) != &device_)
                return {};  // it left service
            if (!with_log(store_, part,
                          [&](auto& log) { return log.hold(part.member, part.offset, part.bytes); }))
                continue;
            AlignedBuffer zeros = AlignedBuffer::zeroed(part.bytes);
            if (write_device(device_, part.offset, zeros.span()).ok() &&
                read_device(device_, part.offset, zeros.span()).ok())
                ++mended;
            with_log(store_, part, [&](auto& log) { return log.release(part.member, part.offset), true; });
        }
        return {};
    }
    [[nodiscard]] bool changes() const override { return false; }

    std::atomic<uint64_t> mended{0};

private:
    Store& store_;
    BlockDevice& device_;
    const std::vector<LogPiece> parts_;
};

// How many of them can be read again.
uint64_t mend_parts(Store& store, CommitOrders& orders, BlockDevice& device, std::span<const LogPiece> parts)
{
    std::string ignored;
    const Ref<MendParts> order = make_ref<MendParts>(store, device, parts);
    orders.carry_out(Ref<CommitOrder>(order.get()), ignored).ignore();
    return order->mended;
}

void scrub_log(Store& store, CommitOrders& orders, const LogPiece& piece, ScrubMode mode, WorkTurns& turns,
               ScrubReport& report)
{
    MemberSet& members = store.volume.members();
    BlockDevice* const device = members.device(piece.member);
    if (device == nullptr)
        return;
    turns.left({.held_back = kLogPieceBytes, .quiet = kLogPieceBytes});
    const std::vector<LogPiece> bad = unreadable_parts(*device, piece);
    turns.pause();
    if (bad.empty())
        return;
    const uint64_t mended = mode == ScrubMode::kRepair ? mend_parts(store, orders, *device, bad) : 0;
    members.count(piece.member, MemberCounter::kReadErrors, bad.size());
    members.count(piece.member, MemberCounter::kRepaired, mended);
    ScrubMemberNumbers& found = report.members[piece.member];
    found[ScrubMemberNumber::kReadErrors] += bad.size();
    found[ScrubMemberNumber::kCorrected] += mended;
    report.repaired += mended;
    report.unrepaired += bad.size() - mended;
    CW_LOG_WARNING("%s: %zu parts of its logs cannot be read; %llu of them were written anew",
                   members.name(piece.member).c_str(), bad.size(), static_cast<unsigned long long>(mended));
}

}  // namespace

uint32_t head_piece_count(Store& store)
{
    uint64_t count = 1;
    for (const LogPiece& log : whole_logs(store))
        count += divide_up(log.bytes, kLogPieceBytes);
    return static_cast<uint32_t>(count);
}

uint64_t head_bytes(Store& store)
{
    uint64_t bytes = 0;
    for (const LogPiece& log : whole_logs(store))
        bytes += log.bytes;
    return bytes;
}

void scrub_head(Store& store, CommitOrders& orders, uint32_t number, ScrubMode mode, WorkTurns& turns,
                ScrubReport& report, ScrubWalkCounts& counts)
{
    if (number == 0)
        return scrub_superblocks(store, orders, mode, turns, report, counts);
    const std::optional<LogPiece> piece = log_piece(store, number - 1);
    if (!piece)
        return;
    counts.head_bytes += piece->bytes;
    scrub_log(store, orders, *piece, mode, turns, report);
}

}  // namespace cowraid
