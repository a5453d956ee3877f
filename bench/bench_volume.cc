// SPDX-License-Identifier: MIT
#include "bench/bench_volume.h"

#include <algorithm>

#include "base/buffer.h"
#include "base/random.h"
#include "base/text.h"
#include "format/profile.h"

namespace cowraid {

namespace {

// Written or read at a time outside the measurement; at least one stripe.
constexpr uint64_t kWindowBytes = 16 * kMiB;

uint64_t stripes_at_once(const Geometry& geometry)
{
    return std::max<uint64_t>(kWindowBytes / geometry.stripe_data_bytes(), 1);
}

}  // namespace

BenchVolume::~BenchVolume() = default;

Result<GroupRecord> BenchVolume::plan_group(const BenchOptions& options, std::string& why) const
{
    const std::vector<MemberRecord>& members = members_->superblock.members;
    const Profile* const profile = find_profile(options.profile);
    GroupRecord group;
    group.address = kGroup;
    group.content = kGroupData;
    group.profile = options.profile;
    group.chunk_bytes = options.chunk_bytes;
    group.data_columns = static_cast<uint32_t>(members.size()) - profile->parity;
    group.created_generation = {1};
    // As much as the smallest has, in whole slots of all.
    uint64_t slot_bytes = 0;
    uint64_t column_bytes = UINT64_MAX;
    for (const MemberRecord& member : members) {
        slot_bytes = std::max(slot_bytes, member.slot_bytes);
        column_bytes = std::min(column_bytes, member.slot_bytes * member.slot_count);
    }
    group.column_bytes = round_down(column_bytes, slot_bytes);
    if (group.column_bytes == 0) {
        why = "the smallest member is too small beside the largest (slots of " + size_text(slot_bytes) +
              "); use members of about one size";
        return Err::kInvalid;
    }
    for (const MemberRecord& member : members)
        group.columns.push_back(
            {.member = member.id,
             .runs = {{0, static_cast<uint32_t>(group.column_bytes / member.slot_bytes)}}});
    return group;
}

Result<std::unique_ptr<BenchVolume>> BenchVolume::make(const BenchOptions& options, std::string& why)
{
    std::unique_ptr<BenchVolume> volume(new BenchVolume);
    CW_ASSIGN(volume->members_, make_bench_members(options, why));
    CW_ASSIGN(const GroupRecord group, volume->plan_group(options, why));
    volume->geometry_ = geometry_of(group);
    volume->checksums_ = std::vector<std::atomic<Checksum>>(group.span_bytes() / kBlockBytes);
    BenchMembers& members = *volume->members_;
    volume->log_ = std::make_unique<IntentLog>(members.set, members.superblock, 1);
    volume->array_ = std::make_unique<Array>(members.set, Array::Options{});
    volume->array_->set_verifier(volume.get());
    const Status status = volume->array_->add_group(group, members.superblock);
    if (!status.ok()) {
        why = "the array takes no such group";
        return status;
    }
    const Status started = volume->array_->start_partial_writes(*volume->log_, options.partial);
    if (!started.ok()) {
        why = "the array refuses these options for partial writes";
        return started;
    }
    return volume;
}

WriteOrigin BenchVolume::origin()
{
    return {
        .generation = {kGeneration},
        .epoch = members_->superblock.log_epoch,
        .sink = this,
    };
}

Status BenchVolume::commit(uint64_t seen)
{
    MutexLock lock(commit_mutex_);
    if (commits() != seen)
        return {};
    Array::FlushBarrier barrier(*array_);
    CW_TRY(members_->flush());
    barrier.flushed();
    array_->retire(barrier.covered);
    commits_.fetch_add(1, std::memory_order_relaxed);
    return {};
}

void BenchVolume::expect(VolumeAddress address, std::span<BlockExpectation> out)
{
    const bool known = filled_.load(std::memory_order_acquire);
    const uint64_t first = (address - kGroup) / kBlockBytes;
    CW_ASSERT(first + out.size() <= checksums_.size());
    for (size_t index = 0; index < out.size(); ++index)
        out[index] = {known, checksums_[first + index].load(std::memory_order_relaxed)};
}

void BenchVolume::record(VolumeAddress address, std::span<const Checksum> checksums)
{
    const uint64_t first = (address - kGroup) / kBlockBytes;
    CW_ASSERT(first + checksums.size() <= checksums_.size());
    for (size_t index = 0; index < checksums.size(); ++index)
        checksums_[first + index].store(checksums[index], std::memory_order_relaxed);
}

Checksum BenchVolume::checksum_at(VolumeAddress address) const
{
    return checksums_[(address - kGroup) / kBlockBytes].load(std::memory_order_relaxed);
}

Status BenchVolume::fill_stripes(uint64_t first, uint64_t count, std::span<const std::byte* const> blocks)
{
    RowWrite write{
        .group_address = kGroup,
        .first_stripe = first,
        .stripe_count = count,
        .row_count = geometry_.rows(),
        .blocks = blocks,
        .sink = this,
    };
    return array_->write_rows(std::span(&write, 1));
}

Status BenchVolume::fill(uint64_t seed)
{
    const uint64_t at_once = stripes_at_once(geometry_);
    const uint64_t stripe_blocks = geometry_.stripe_data_blocks();
    AlignedBuffer memory(at_once * stripe_blocks * kBlockBytes);
    std::vector<const std::byte*> blocks;
    for (uint64_t block = 0; block < at_once * stripe_blocks; ++block)
        blocks.push_back(memory.data() + block * kBlockBytes);
    Prng prng(seed);
    for (uint64_t stripe = 0; stripe < geometry_.stripe_count(); stripe += at_once) {
        const uint64_t count = std::min(at_once, geometry_.stripe_count() - stripe);
        prng.fill(memory.data(), count * stripe_blocks * kBlockBytes);
        CW_TRY(fill_stripes(stripe, count, std::span(blocks).first(count * stripe_blocks)));
        // Simulated members remember what was not flushed.
        CW_TRY(members_->flush());
    }
    filled_.store(true, std::memory_order_release);
    return {};
}

Result<uint64_t> BenchVolume::read_everything()
{
    AlignedBuffer memory(kWindowBytes);
    std::vector<Checksum> wanted(kWindowBytes / kBlockBytes);
    uint64_t bad = 0;
    const uint64_t before = array_->statistics().blocks_reconstructed;
    for (uint64_t at = 0; at < data_bytes(); at += kWindowBytes) {
        const uint64_t count = std::min(kWindowBytes, data_bytes() - at) / kBlockBytes;
        for (uint64_t block = 0; block < count; ++block)
            wanted[block] = checksum_at(kGroup + at + block * kBlockBytes);
        ReadPiece piece{
            .address = kGroup + at,
            .block_count = static_cast<uint32_t>(count),
            .memory = memory.data(),
            .checksums = wanted.data(),
        };
        const Status status = array_->read(std::span(&piece, 1));
        if (!status.ok() && status.err() != Err::kTooManyFaults)
            return status;
        bad += piece.bad_blocks;
    }
    // What had to come from redundancy was wrong on its member.
    return bad + array_->statistics().blocks_reconstructed - before;
}

Result<uint64_t> BenchVolume::count_bad_blocks()
{
    uint64_t bad = 0;
    const uint64_t at_once = stripes_at_once(geometry_);
    for (uint64_t stripe = 0; stripe < geometry_.stripe_count(); stripe += at_once) {
        std::vector<BadBlock> found;
        const uint64_t count = std::min(at_once, geometry_.stripe_count() - stripe);
        CW_TRY(array_->check_stripes(kGroup, stripe, count, found));
        bad += found.size();
    }
    CW_ASSIGN(const uint64_t unreadable, read_everything());
    return bad + unreadable;
}

}  // namespace cowraid
