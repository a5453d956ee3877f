// SPDX-License-Identifier: MIT
#include "tests/fsynclog/fsync_world.h"

#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "sim/borrowed_device.h"

namespace cowraid::test {

FsyncWorld::FsyncWorld(const FsyncRun& run) : run_(run), prng_(run.seed), tolerance_(1)
{
    const auto member_count = static_cast<uint32_t>(prng_.between(2, 6));
    tolerance_ = static_cast<uint32_t>(prng_.between(1, std::min(member_count - 1, 2u)));
    prng_.fill(superblock_.volume_uuid.bytes.data(), superblock_.volume_uuid.bytes.size());
    superblock_.generation = committed_;
    superblock_.epochs = {{prng_.next(), {1}}};
    superblock_.log_epoch = superblock_.epochs.front().epoch;
    for (uint32_t id = 1; id <= member_count; ++id) {
        MemberRecord record;
        record.id = {id};
        record.fsync_log_offset = (id + 1) * 64 * kKiB;
        record.fsync_log_bytes = prng_.between(8, 40) * kBlockBytes;
        superblock_.members.push_back(record);
        disks_.push_back(std::make_unique<SimDevice>("m" + std::to_string(id), 2 * kMiB, &power_));
    }
}

FsyncMask FsyncWorld::part_of(FsyncMask mask)
{
    return prng_.chance(1, 3) ? 0 : mask & static_cast<FsyncMask>(prng_.next());
}

std::unique_ptr<MemberSet> FsyncWorld::attach(FsyncMask absent, FsyncMask unreadable)
{
    auto members = std::make_unique<MemberSet>();
    faults_.assign(count(), nullptr);
    for (uint32_t index = 0; index < count(); ++index) {
        const MemberRecord& record = superblock_.members[index];
        if (in(absent, index)) {
            members->add(record.id, nullptr, {});
            continue;
        }
        auto device =
            std::make_unique<FaultDevice>(std::make_unique<BorrowedDevice>(*disks_[index]), prng_.next());
        faults_[index] = device.get();
        if (is(FsyncMutant::kNotDurable))
            device->add_rule({.action = FaultAction::kLost, .kinds = kFaultFlushes});
        for (uint64_t piece = 0; in(unreadable, index) && piece < 4; ++piece) {
            const uint64_t block = prng_.below(record.fsync_log_bytes / kBlockBytes);
            const uint64_t begin = record.fsync_log_offset + block * kBlockBytes;
            const uint64_t end = begin + prng_.between(1, 5) * kBlockBytes;
            const FaultAction action = prng_.chance(1, 2) ? FaultAction::kError : FaultAction::kBitFlip;
            device->add_rule({.action = action, .kinds = kFaultReads, .begin = begin, .end = end});
        }
        members->add(record.id, std::move(device), {});
    }
    return members;
}

// As every degraded mount does, before its first commit.
void FsyncWorld::stamp_epoch(FsyncMask absent)
{
    if (absent != 0)
        superblock_.epochs.insert(superblock_.epochs.begin(), {prng_.next(), committed_.next()});
}

// Damages some blocks of a member's ring, the sequence of their header for instance.
void FsyncWorld::rot(uint32_t index)
{
    const MemberRecord& record = superblock_.members[index];
    for (uint64_t piece = prng_.below(6); piece > 0; --piece) {
        const uint64_t block = prng_.below(record.fsync_log_bytes / kBlockBytes);
        const uint64_t offset = record.fsync_log_offset + block * kBlockBytes;
        std::byte bytes[kBlockBytes];
        disks_[index]->peek(offset, bytes);
        const bool sequence = prng_.chance(1, 2);
        const size_t at = sequence ? offsetof(DiskFsyncBlock, sequence) : prng_.below(kBlockBytes);
        bytes[at] ^= std::byte{1} << prng_.below(sequence ? 3 : 8);
        if (sequence && is(FsyncMutant::kSequenceUncovered)) {
            const le64 checksum(checksum_of(std::span<const std::byte>(bytes).subspan(sizeof(le64))));
            std::memcpy(bytes, &checksum, sizeof checksum);
        }
        disks_[index]->poke(offset, bytes);
    }
}

// The mutant that does not look at checksums: from here on they are right.
void FsyncWorld::bless_damaged_blocks()
{
    for (uint32_t index = 0; index < count(); ++index) {
        const MemberRecord& record = superblock_.members[index];
        for (uint64_t at = 0; at < record.fsync_log_bytes; at += kBlockBytes) {
            std::byte bytes[kBlockBytes];
            disks_[index]->peek(record.fsync_log_offset + at, bytes);
            if (decode_fsync_block(bytes, superblock_.volume_uuid).err() != Err::kCorrupt)
                continue;
            DiskFsyncBlock disk;
            std::memcpy(&disk, bytes, sizeof disk);
            if (disk.content_bytes <= kFsyncRoomBytes)
                disk.content_checksum = checksum_of(bytes + sizeof disk, disk.content_bytes);
            std::memcpy(bytes, &disk, sizeof disk);
            const le64 checksum(checksum_of(std::span<const std::byte>(bytes).subspan(sizeof(le64))));
            std::memcpy(bytes, &checksum, sizeof checksum);
            disks_[index]->poke(record.fsync_log_offset + at, bytes);
        }
    }
}

void FsyncWorld::lost(const char* what, uint64_t sequence)
{
    ++report_.losses;
    if (report_.first_loss.empty())
        report_.first_loss = std::string(what) + ", record " + std::to_string(sequence) + ", seed " +
                             std::to_string(run_.seed) + ", scan " + std::to_string(report_.scans);
}

// What comes back is the beginning of what was logged and is not committed, at least up to the last record
// that was acknowledged.
void FsyncWorld::compare(std::span<const FsyncScan::Batch> batches, FsyncScan& scan)
{
    std::sort(logged_.begin(), logged_.end(),
              [](const LoggedRecord& a, const LoggedRecord& b) { return a.sequence < b.sequence; });
    std::vector<const LoggedRecord*> live;
    for (const LoggedRecord& record : logged_)
        if (record.generation > committed_)
            live.push_back(&record);
    size_t at = 0;
    for (const FsyncScan::Batch& batch : batches) {
        const Result<FsyncContent> content = scan.read(batch);
        // A member that reads well only now and then had the last copy: another scan may do without.
        if (!content.ok())
            break;
        for (const std::span<const std::byte> bytes : content->records) {
            if (at == live.size())
                return lost("never logged", batch.header.sequence);
            const LoggedRecord& record = *live[at++];
            if (!std::equal(bytes.begin(), bytes.end(), record.bytes.begin(), record.bytes.end()) ||
                batch.header.sequence > record.sequence || batch.header.end_sequence() <= record.sequence)
                return lost("another one, or other bytes", record.sequence);
            ++report_.returned;
            report_.returned_unacknowledged += record.acknowledged ? 0 : 1;
        }
    }
    for (; at < live.size(); ++at)
        if (live[at]->acknowledged)
            return lost("acknowledged and gone", live[at]->sequence);
}

void FsyncWorld::check(MemberSet& members, uint64_t& next_sequence, Generation& commit_at_least)
{
    ++report_.scans;
    Superblock superblock = superblock_;
    if (is(FsyncMutant::kNewestEpoch))
        superblock.log_epoch = superblock.epochs.front().epoch;
    const Generation committed{committed_.value - (is(FsyncMutant::kOldGeneration) ? 1 : 0)};
    FsyncScan scan(members, superblock, committed);
    std::vector<FsyncScan::Batch> taken(scan.batches().begin(), scan.batches().end());
    report_.behind_gaps += scan.left_out().size();
    for (const FsyncScan::Batch& batch : scan.left_out()) {
        const bool behind = !taken.empty() && batch.header.sequence == taken.back().header.end_sequence();
        const bool first = taken.empty() || (behind && scan.batches().empty());
        if (is(FsyncMutant::kGapIgnored) || (is(FsyncMutant::kFirstIgnored) && first))
            taken.push_back(batch);
    }
    compare(taken, scan);
    next_sequence = scan.next_sequence();
    commit_at_least = scan.commit_at_least();
}

// Mounts with other members away or unreadable each time; some crash before their commit.
void FsyncWorld::recover(FsyncMask faulty)
{
    if (is(FsyncMutant::kNoChecksum))
        bless_damaged_blocks();
    for (uint32_t index = 0; index < count(); ++index)
        if (in(faulty, index) && prng_.chance(1, 2))
            rot(index);
    Generation commit_at_least;
    do {
        const FsyncMask absent = part_of(faulty);
        const auto members = attach(absent, part_of(faulty & ~absent));
        check(*members, next_sequence_, commit_at_least);
        stamp_epoch(absent);
    } while (prng_.chance(1, 3));
    committed_ =
        is(FsyncMutant::kCommitTooLow) ? committed_.next() : std::max(committed_.next(), commit_at_least);
    logged_.clear();
}

FsyncReport FsyncWorld::go()
{
    const auto below = uint64_t{1} << count();
    for (uint32_t life = 0; life < run_.lives; ++life) {
        FsyncMask faulty;
        do
            faulty = static_cast<FsyncMask>(prng_.below(below));
        while (static_cast<uint32_t>(__builtin_popcount(faulty)) > tolerance_);
        const FsyncMask absent = prng_.chance(1, 2) ? 0 : part_of(faulty);
        stamp_epoch(absent);
        superblock_.log_epoch = superblock_.epochs.front().epoch;  // nothing is live
        FsyncLife(*this, faulty, absent).go();
        power_.turn_off();
        for (const auto& disk : disks_)
            disk->power_cut(prng_, {.unit_bytes = prng_.chance(1, 2) ? 512u : 4096u});
        power_.turn_on();
        recover(faulty);
    }
    return report_;
}

void FsyncReport::add(const FsyncReport& other)
{
    scans += other.scans;
    appended += other.appended;
    acknowledged += other.acknowledged;
    returned += other.returned;
    returned_unacknowledged += other.returned_unacknowledged;
    behind_gaps += other.behind_gaps;
    refusals += other.refusals;
    replaced += other.replaced;
    wraps += other.wraps;
    losses += other.losses;
    if (first_loss.empty())
        first_loss = other.first_loss;
}

FsyncReport run_fsync_model(const FsyncRun& run)
{
    return FsyncWorld(run).go();
}

}  // namespace cowraid::test
