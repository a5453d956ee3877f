// SPDX-License-Identifier: MIT
#include "tests/support/array_fixture.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "base/checksum.h"
#include "base/log.h"
#include "device/superblock_store.h"
#include "format/profile.h"
#include "journal/intent_scan.h"
#include "raid56/parity.h"

namespace cowraid::test {

void CountingDevice::perform(IoRequest& request)
{
    {
        MutexLock lock(mutex_);
        entries_.push_back({request.kind, request.offset.value, request.bytes(), request.vectors.size()});
    }
    inner_->perform(request);
}

std::vector<CountingDevice::Entry> CountingDevice::entries(IoKind kind) const
{
    MutexLock lock(mutex_);
    std::vector<Entry> some;
    std::copy_if(entries_.begin(), entries_.end(), std::back_inserter(some),
                 [&](const Entry& entry) { return entry.kind == kind; });
    return some;
}

void CountingDevice::forget()
{
    MutexLock lock(mutex_);
    entries_.clear();
}

std::string describe(const Shape& shape)
{
    char text[64];
    snprintf(text, sizeof text, "%s k=%u chunk=%u", find_profile(shape.profile)->name, shape.data_columns,
             shape.chunk_bytes);
    return text;
}

std::vector<Shape> parity_shapes(uint32_t widest, std::initializer_list<uint32_t> chunks)
{
    std::vector<Shape> all;
    for (const uint32_t chunk : chunks)
        for (const ProfileId id : {ProfileId::kRaid5, ProfileId::kRaid6})
            for (uint32_t k = 1; k + find_profile(id)->parity <= widest; ++k)
                all.push_back({id, k, chunk});
    return all;
}

std::vector<Shape> shapes(std::initializer_list<uint32_t> chunks)
{
    std::vector<Shape> all = parity_shapes(8, chunks);
    for (const uint32_t chunk : chunks) {
        for (const Profile& profile : profiles())
            if (profile.parity == 0)
                all.push_back({profile.id, 1, chunk});
        all.push_back({ProfileId::kRaid5, 15, chunk});
        all.push_back({ProfileId::kRaid6, 14, chunk});
        all.push_back({ProfileId::kRaid0, 3, chunk});
        all.push_back({ProfileId::kRaid10, 3, chunk});
    }
    return all;
}

TestVolume::TestVolume(const Shape& wanted, uint64_t seed, PowerSupply* power) : shape(wanted), prng(seed)
{
    log_set_level(static_cast<LogLevel>(-1));  // faults are made by the thousand here: silence
    const Profile* profile = find_profile(shape.profile);
    make_members(shape.data_columns * profile->copies + profile->parity, power);
    superblock.volume_uuid.bytes = {0x42};
    superblock.generation = {7};
    superblock.root.generation = {7};
    superblock.epochs = {{0x5eed, {1}}};
    superblock.log_epoch = 0x5eed;
    make_group();
    make_array();
}

TestVolume::TestVolume(const TestVolume& crashed, uint64_t seed, std::span<const uint32_t> without)
    : shape(crashed.shape),
      geometry(crashed.geometry),
      group_record(crashed.group_record),
      superblock(crashed.superblock),
      prng(seed)
{
    contents_ = committed_contents_ = crashed.committed_contents_;
    checksums_ = committed_checksums_ = crashed.committed_checksums_;
    free_addresses = crashed.free_addresses;
    free_addresses.insert(crashed.uncommitted_.begin(), crashed.uncommitted_.end());
    for (uint32_t member = 0; member < crashed.sims.size(); ++member) {
        std::unique_ptr<SimDevice> sim = crashed.sims[member]->clone("sim");
        add_member(member, std::move(sim));
    }
    for (const uint32_t member : without)
        set.leave_out(member_id(member));
    make_array();
}

TestVolume::~TestVolume()
{
    array.reset();
}

void TestVolume::make_array()
{
    geometry = geometry_of(group_record);
    array = std::make_unique<Array>(set, Array::Options{});
    CW_ASSERT(array->add_group(group_record, superblock).ok());
    array->set_verifier(this);
}

void TestVolume::make_members(uint32_t columns, PowerSupply* power)
{
    for (uint32_t member = 0; member < columns; ++member) {
        MemberRecord line;
        line.id = member_id(member);
        line.size_bytes = 128 * kMiB;
        // Members differ, so that a mixed-up member or column is noticed.
        line.slots_offset = (16 + member % 3) * kMiB;
        line.slot_bytes = kSlotBytes;
        line.slot_count = 6;
        line.intent_log_offset = 4 * kMiB;
        line.intent_log_bytes = kLogBytes;
        superblock.members.push_back(line);
        add_member(member,
                   std::make_unique<SimDevice>("sim" + std::to_string(member), line.size_bytes, power));
    }
}

void TestVolume::add_member(uint32_t member, std::unique_ptr<SimDevice> sim)
{
    sims.push_back(sim.get());
    auto fault = std::make_unique<FaultDevice>(std::move(sim), member);
    faults.push_back(fault.get());
    auto count = std::make_unique<CountingDevice>(std::move(fault));
    counts.push_back(count.get());
    auto hold = std::make_unique<HoldingDevice>(std::move(count));
    holds.push_back(hold.get());
    set.add(member_id(member), std::move(hold), {});
}

void TestVolume::make_group()
{
    group_record.address = kGroup;
    group_record.content = kGroupData;
    group_record.profile = shape.profile;
    group_record.column_bytes = 3 * kSlotBytes;
    group_record.chunk_bytes = shape.chunk_bytes;
    group_record.data_columns = shape.data_columns;
    for (uint32_t member = 0; member < superblock.members.size(); ++member) {
        // Every other member stores its column in two runs, one of them in front of the other.
        GroupColumn column{.member = member_id(member)};
        if (member % 2 == 0)
            column.runs = {{1, 3}};
        else
            column.runs = {{4, 1}, {1, 2}};
        group_record.columns.push_back(column);
    }
}

void TestVolume::expect(VolumeAddress address, std::span<BlockExpectation> out)
{
    MutexLock lock(mutex_);
    for (size_t i = 0; i < out.size(); ++i) {
        const uint64_t at = address.value + i * kBlockBytes;
        CW_ASSERT(at - kGroup.value < group_record.span_bytes());
        out[i] = {};
        if (const auto answer = answers.find(at); answer != answers.end())
            out[i] = answer->second;
        else if (const auto written = checksums_.find(at); written != checksums_.end() && !knows_nothing)
            out[i] = {true, written->second};
    }
}

void TestVolume::record(VolumeAddress address, std::span<const Checksum> written)
{
    MutexLock lock(mutex_);
    for (size_t i = 0; i < written.size(); ++i)
        checksums_[address.value + i * kBlockBytes] = written[i];
}

bool TestVolume::in_use(VolumeAddress address)
{
    MutexLock lock(mutex_);
    return free_addresses.count(address.value) == 0;
}

void TestVolume::start_partial_writes(const PartialWriteOptions& options)
{
    log = std::make_unique<IntentLog>(set, superblock, 1);
    CW_ASSERT(array->start_partial_writes(*log, options).ok());
}

void TestVolume::record_away()
{
    for (GroupColumn& column : group_record.columns)
        if (set.device(column.member) == nullptr)
            column.stale_since = superblock.generation.next();
    CW_ASSERT(array->update_groups({&group_record, 1}, superblock).ok());
}

Status TestVolume::commit_all()
{
    const auto out_of_service = [&] {
        size_t count = 0;
        for (uint32_t member = 0; member < sims.size(); ++member)
            count += set.device(member_id(member)) == nullptr ? 1 : 0;
        return count;
    };
    const size_t before = out_of_service();
    Array::FlushBarrier barrier(*array);
    CW_TRY(flush_members(set));
    if (out_of_service() != before)
        return Err::kIo;  // here is no superblock that would record it
    barrier.flushed();
    array->retire(barrier.covered);
    superblock.generation = superblock.generation.next();
    superblock.root.generation = superblock.generation;
    MutexLock lock(mutex_);
    committed_contents_ = contents_;
    committed_checksums_ = checksums_;
    uncommitted_.clear();
    return {};
}

Status TestVolume::recover(RecoveryCounts& counts_out)
{
    IntentScan scan(set, superblock);
    CW_TRY(array->recover_rows(scan, *this, counts_out));
    return flush_members(set);
}

Status TestVolume::overwrite(uint64_t first_block, uint32_t block_count)
{
    AlignedBuffer content(size_t{block_count} * kBlockBytes);
    {
        MutexLock lock(mutex_);
        prng.fill(content.data(), content.size());
        for (uint64_t block = first_block; block < first_block + block_count; ++block)
            uncommitted_.insert(kGroup.value + block * kBlockBytes);
    }
    BlockWrite write{kGroup + first_block * kBlockBytes, block_count, content.data(), {}};
    CW_TRY(array->write_blocks({&write, 1}, origin()));
    expect_content(first_block, content.span());
    return {};
}

void TestVolume::expect_content(uint64_t first_block, std::span<const std::byte> content)
{
    const uint32_t k = geometry.data_columns;
    MutexLock lock(mutex_);
    for (size_t at = 0; at < content.size(); at += kBlockBytes) {
        const BlockPlace place = place_of(geometry, first_block * kBlockBytes + at);
        const auto address = [&](uint32_t column) {
            return kGroup.value + offset_of(geometry, {place.stripe, column, place.row});
        };
        contents_[address(place.column)].assign(content.begin() + static_cast<ptrdiff_t>(at),
                                                content.begin() + static_cast<ptrdiff_t>(at + kBlockBytes));
        AlignedBuffer row(size_t{geometry.columns()} * kBlockBytes);
        std::vector<const std::byte*> data;
        std::vector<std::byte*> parity;
        for (uint32_t column = 0; column < geometry.columns(); ++column) {
            std::byte* block = row.data() + size_t{column} * kBlockBytes;
            if (column < k) {
                std::memcpy(block, contents_.at(address(column)).data(), kBlockBytes);
                data.push_back(block);
            } else {
                parity.push_back(block);
            }
        }
        parity_generate(data, parity, kBlockBytes);
        for (uint32_t column = k; column < geometry.columns(); ++column)
            contents_[address(column)].assign(parity[column - k], parity[column - k] + kBlockBytes);
    }
}

void TestVolume::unrecoverable(VolumeAddress address)
{
    MutexLock lock(mutex_);
    given_up.push_back(address);
}

RowWrite TestVolume::prepare(uint64_t first_stripe, uint64_t stripe_count, uint32_t first_row,
                             uint32_t row_count, uint32_t pad_percent)
{
    const uint64_t rows = stripe_count * row_count;
    auto prepared = std::make_unique<Prepared>();
    prepared->data = AlignedBuffer(rows * geometry.data_columns * kBlockBytes);
    prng.fill(prepared->data.data(), prepared->data.size());
    for (size_t i = 0; i < rows * geometry.data_columns; ++i)
        prepared->blocks.push_back(prng.chance(pad_percent, 100) ? nullptr
                                                                 : prepared->data.data() + i * kBlockBytes);
    prepared_.push_back(std::move(prepared));
    return {
        .group_address = kGroup,
        .first_stripe = first_stripe,
        .stripe_count = stripe_count,
        .first_row = first_row,
        .row_count = row_count,
        .blocks = prepared_.back()->blocks,
        .sink = prepared_.back().get(),
    };
}

void TestVolume::commit(const RowWrite& write)
{
    const uint32_t k = geometry.data_columns;
    const uint32_t columns = k + geometry.parity;
    AlignedBuffer contents(size_t{columns} * kBlockBytes);
    const auto prepared = std::find_if(prepared_.begin(), prepared_.end(),
                                       [&](const auto& one) { return one.get() == write.sink; });
    MutexLock lock(mutex_);
    for (uint64_t stripe = 0; stripe < write.stripe_count; ++stripe) {
        for (uint32_t row = 0; row < write.row_count; ++row) {
            std::vector<const std::byte*> data;
            std::vector<std::byte*> parity;
            for (uint32_t column = 0; column < columns; ++column) {
                std::byte* content = contents.data() + size_t{column} * kBlockBytes;
                if (column >= k) {
                    parity.push_back(content);
                    continue;
                }
                const std::byte* block = write.blocks[(stripe * k + column) * write.row_count + row];
                if (block != nullptr)
                    std::memcpy(content, block, kBlockBytes);
                else
                    std::memset(content, 0, kBlockBytes);
                data.push_back(content);
            }
            // Held against the byte loop in parity_test.cc.
            parity_generate(data, parity, kBlockBytes);
            for (uint32_t column = 0; column < columns; ++column) {
                const BlockPlace place{write.first_stripe + stripe, column, write.first_row + row};
                const uint64_t address = kGroup.value + offset_of(geometry, place);
                const std::byte* content = contents.data() + size_t{column} * kBlockBytes;
                checksums_[address] = checksum_of(content, kBlockBytes);
                if (prepared != prepared_.end())
                    CW_ASSERT((*prepared)->recorded.at(address) == checksums_[address]);
                contents_[address].assign(content, content + kBlockBytes);
            }
        }
    }
}

Status TestVolume::write(uint64_t first_stripe, uint64_t stripe_count, uint32_t pad_percent)
{
    RowWrite write = prepare(first_stripe, stripe_count, 0, geometry.rows(), pad_percent);
    CW_TRY(array->write_rows(std::span(&write, 1)));
    commit(write);
    return {};
}

Status TestVolume::write_rows(uint64_t stripe, uint32_t first_row, uint32_t row_count, uint32_t pad_percent)
{
    RowWrite write = prepare(stripe, 1, first_row, row_count, pad_percent);
    CW_TRY(array->write_rows(std::span(&write, 1)));
    commit(write);
    return {};
}

ReadPiece TestVolume::piece(uint64_t first_block, uint32_t block_count)
{
    auto memory = std::make_unique<PieceMemory>();
    memory->data = AlignedBuffer(size_t{block_count} * kBlockBytes);
    std::memset(memory->data.data(), 0xee, memory->data.size());
    for (uint32_t i = 0; i < block_count; ++i)
        memory->checksums.push_back(checksum_at(place_of(geometry, (first_block + i) * kBlockBytes)));
    piece_memory_.push_back(std::move(memory));
    return {
        .address = kGroup + first_block * kBlockBytes,
        .block_count = block_count,
        .memory = piece_memory_.back()->data.data(),
        .checksums = piece_memory_.back()->checksums.data(),
    };
}

bool TestVolume::right(const ReadPiece& piece) const
{
    for (uint32_t i = 0; i < piece.block_count; ++i) {
        const uint64_t offset = piece.address - kGroup + uint64_t{i} * kBlockBytes;
        const std::vector<std::byte>* content = content_at(place_of(geometry, offset));
        if (content == nullptr ||
            std::memcmp(content->data(), piece.memory + size_t{i} * kBlockBytes, kBlockBytes) != 0)
            return false;
    }
    return true;
}

bool TestVolume::read_back(uint64_t first_block, uint32_t block_count)
{
    ReadPiece one = piece(first_block, block_count);
    const bool good = array->read(std::span(&one, 1)).ok() && one.bad_blocks == 0 && right(one);
    piece_memory_.pop_back();
    return good;
}

TestVolume::Spot TestVolume::spot(const BlockPlace& place, uint32_t copy) const
{
    const uint32_t column = group_column(geometry, place.stripe, place.column, copy);
    const uint64_t offset = column_offset(geometry, place);
    const MemberRecord& member = superblock.members[column];
    uint64_t at = 0;
    for (const SlotRun& run : group_record.columns[column].runs) {
        const uint64_t bytes = run.slot_count * kSlotBytes;
        if (offset < at + bytes)
            return {column, member.slots_offset + run.first_slot * kSlotBytes + offset - at};
        at += bytes;
    }
    CW_ASSERT(false);
}

void TestVolume::rot(const BlockPlace& place, uint32_t copy)
{
    const Spot where = spot(place, copy);
    std::vector<std::byte> block(kBlockBytes);
    sims[where.member]->peek(where.offset, block);
    // From one bit to the whole block.
    if (prng.chance(1, 3))
        block[prng.below(kBlockBytes)] ^= std::byte{0x10};
    else if (prng.chance(1, 2))
        prng.fill(block.data(), block.size());
    else
        for (std::byte& byte : block)
            byte ^= static_cast<std::byte>(prng.between(1, 255));
    sims[where.member]->poke(where.offset, block);
}

void TestVolume::latent(const BlockPlace& place, uint32_t copy)
{
    const Spot where = spot(place, copy);
    faults[where.member]->add_rule({
        .action = FaultAction::kLatent,
        .kinds = kFaultReads,
        .begin = where.offset,
        .end = where.offset + kBlockBytes,
    });
}

bool TestVolume::disk_is_right(const std::vector<uint32_t>& without)
{
    MutexLock lock(mutex_);
    std::vector<std::byte> block(kBlockBytes);
    for (const auto& [address, content] : contents_) {
        const BlockPlace place = place_of(geometry, address - kGroup.value);
        for (uint32_t copy = 0; copy < geometry.copies; ++copy) {
            const Spot where = spot(place, copy);
            if (std::find(without.begin(), without.end(), where.member) != without.end())
                continue;
            sims[where.member]->peek(where.offset, block);
            if (block != content || checksum_of(block) != checksums_.at(address))
                return false;
        }
    }
    return true;
}

std::vector<std::byte> TestVolume::image(uint32_t member) const
{
    std::vector<std::byte> all;
    for (const SlotRun& run : group_record.columns[member].runs) {
        std::vector<std::byte> begin(kMiB);
        sims[member]->peek(superblock.members[member].slots_offset + run.first_slot * kSlotBytes, begin);
        all.insert(all.end(), begin.begin(), begin.end());
    }
    return all;
}

uint64_t TestVolume::counter(uint32_t member, MemberCounter counter) const
{
    return set.counters(member_id(member))[static_cast<size_t>(counter)];
}

uint64_t TestVolume::all_counters(uint32_t except) const
{
    uint64_t sum = 0;
    for (uint32_t member = 0; member < sims.size(); ++member)
        if (member != except)
            for (const uint64_t value : set.counters(member_id(member)))
                sum += value;
    return sum;
}

size_t TestVolume::requests(IoKind kind) const
{
    size_t sum = 0;
    for (const CountingDevice* device : counts)
        sum += device->entries(kind).size();
    return sum;
}

void TestVolume::forget_requests()
{
    for (CountingDevice* device : counts)
        device->forget();
}

Checksum TestVolume::checksum_at(const BlockPlace& place) const
{
    MutexLock lock(mutex_);
    const auto found = checksums_.find(kGroup.value + offset_of(geometry, place));
    return found == checksums_.end() ? 0 : found->second;
}

const std::vector<std::byte>* TestVolume::content_at(const BlockPlace& place) const
{
    MutexLock lock(mutex_);
    const auto found = contents_.find(kGroup.value + offset_of(geometry, place));
    return found == contents_.end() ? nullptr : &found->second;
}

}  // namespace cowraid::test
