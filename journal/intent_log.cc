// SPDX-License-Identifier: MIT
#include "journal/intent_log.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "base/buffer.h"
#include "base/checksum.h"
#include "device/member_batch.h"
#include "journal/log_life.h"

namespace cowraid {

// What one member gets of an append: descriptor blocks, each followed by the partial parities it refers to.
struct IntentLog::Batch {
    struct Item {
        size_t row;  // index in the call's rows
        const RowIntent::Copy* copy;
    };
    // Items that share a descriptor block.
    struct Part {
        size_t first_item;
        size_t item_count;
    };
    MemberId member;
    DeviceOffset offset;
    uint32_t first_block = 0;
    std::vector<Item> items;
    std::vector<Part> parts;
    AlignedBuffer descriptors;  // one block per part
    std::vector<iovec> vectors;
    bool failed = false;

    void divide(std::span<const RowIntent> rows);
    [[nodiscard]] uint32_t block_count() const { return static_cast<uint32_t>(items.size() + parts.size()); }
};

void IntentLog::Batch::divide(std::span<const RowIntent> rows)
{
    size_t room = 0;
    for (size_t index = 0; index < items.size(); ++index) {
        const size_t bytes = intent_entry_bytes(rows[items[index].row].checksums.size());
        if (parts.empty() || bytes > room) {
            parts.push_back({index, 0});
            room = kIntentRoomBytes;
        }
        room -= bytes;
        ++parts.back().item_count;
    }
}

IntentLog::IntentLog(MemberSet& members, const Superblock& superblock, uint64_t first_sequence)
    : members_(members),
      volume_uuid_(superblock.volume_uuid),
      next_sequence_(first_sequence),
      floor_(first_sequence)
{
    CW_ASSERT(first_sequence > 0);
    for (const MemberRecord& record : superblock.members)
        add_member(record);
}

void IntentLog::add_member(const MemberRecord& record)
{
    MutexLock lock(mutex_);
    logs_.push_back({MemberRing(record, LogKind::kIntent)});
    uint64_t least = UINT64_MAX;
    for (const MemberLog& log : logs_)
        least = std::min<uint64_t>(least, log.ring.block_count());
    const size_t batch = std::clamp<size_t>(least / 8, 1, kMaxBatchRows);
    batch_rows_.store(batch, std::memory_order_relaxed);
    // A row takes two blocks at most: its partial parity, and a descriptor that it may not share. What an
    // append does not fit into before the end is left over, and one block is for a floor.
    const uint64_t left_over = 2 * batch + 1;
    const uint64_t rows = (least - std::min(least, left_over)) / 2;
    row_count_min_.store(std::max<uint64_t>(rows, 1), std::memory_order_relaxed);
}

IntentLog::MemberLog* IntentLog::find(MemberId member)
{
    const auto at = std::find_if(logs_.begin(), logs_.end(),
                                 [=](const MemberLog& log) { return log.ring.member() == member; });
    return at == logs_.end() ? nullptr : &*at;
}

// Gives every row its sequence and every member's batch its place. One block more than the rows take stays
// free, so that a floor can always be recorded.
Status IntentLog::plan(std::span<RowIntent> rows, std::vector<Batch>& batches)
{
    batches.clear();
    for (size_t index = 0; index < rows.size(); ++index) {
        for (const RowIntent::Copy& copy : rows[index].copies) {
            auto batch = std::find_if(batches.begin(), batches.end(),
                                      [&](const Batch& one) { return one.member == copy.member; });
            if (batch == batches.end()) {
                batches.emplace_back().member = copy.member;
                batch = batches.end() - 1;
            }
            batch->items.push_back({index, &copy});
        }
    }
    for (Batch& batch : batches)
        batch.divide(rows);
    MutexLock lock(mutex_);
    for (Batch& batch : batches) {
        const MemberLog* log = find(batch.member);
        CW_ASSERT(log != nullptr);
        batch.failed = members_.device(batch.member) == nullptr;
        if (!batch.failed && !log->ring.find_place(batch.block_count() + 1, batch.first_block))
            return Err::kNoSpace;
        batch.offset = log->ring.offset_of(batch.first_block);
    }
    // Only where forged entries were near it: a scan would not believe what counts on.
    if (next_sequence_ + rows.size() > kMaxIntentSequence + 1)
        return Err::kNoSpace;
    for (RowIntent& row : rows) {
        row.sequence = next_sequence_++;
        unwritten_.insert(row.sequence);
    }
    for (const Batch& batch : batches)
        if (!batch.failed)
            find(batch.member)->ring.take(batch.first_block, batch.block_count(), next_sequence_ - 1);
    return {};
}

// A descriptor without entries for every member that has retired entries and has not been told. It takes a
// place like an append, and like one is overwritten only after a newer descriptor is durable.
bool IntentLog::plan_floor(std::vector<Batch>& batches, IntentHeader& header)
{
    MutexLock lock(mutex_);
    header.floor = floor_;
    for (MemberLog& log : logs_) {
        MemberRing& ring = log.ring;
        if (log.floor_on_its_way || ring.segments().empty() || ring.segments().front().last >= floor_ ||
            members_.device(ring.member()) == nullptr)
            continue;
        uint32_t block = 0;
        // Blocks of floors whose writes failed stay taken.
        if (!ring.find_place(1, block))
            continue;
        Batch& batch = batches.emplace_back();
        batch.member = ring.member();
        batch.offset = ring.offset_of(block);
        batch.parts.push_back({0, 0});
        batch.first_block = block;
        ring.take(block, 1, next_sequence_);
        log.floor_on_its_way = true;
    }
    return !batches.empty();
}

void IntentLog::record_floor(IntentHeader header)
{
    std::vector<Batch> batches;
    if (!plan_floor(batches, header))
        return;
    for (Batch& batch : batches)
        fill({}, header, batch);
    if (write(batches).ok())
        settle(batches, header.floor);
    MutexLock lock(mutex_);
    for (const Batch& batch : batches)
        find(batch.member)->floor_on_its_way = false;
    room_changed_.notify_all();
}

uint64_t IntentLog::room_made() const
{
    MutexLock lock(mutex_);
    return room_made_;
}

// Records a floor where entries are retired, and waits for others that do, and for blocks that are held.
// False: no room was made since room_made() was `room_before`.
bool IntentLog::make_room(IntentHeader header, uint64_t room_before)
{
    record_floor(header);
    MutexLock lock(mutex_);
    const auto waits = [](const MemberLog& log) {
        return log.floor_on_its_way || log.ring.any_held();
    };
    while (room_made_ == room_before && std::any_of(logs_.begin(), logs_.end(), waits))
        room_changed_.wait(mutex_);
    return room_made_ != room_before;
}

// Descriptors with `floor` are durable on the batches' members: what lies below it may be overwritten.
void IntentLog::settle(std::span<const Batch> batches, uint64_t floor)
{
    MutexLock lock(mutex_);
    for (const Batch& batch : batches) {
        if (batch.failed) {
            ++room_made_;
            continue;
        }
        MemberLog* log = find(batch.member);
        log->durable_floor = std::max(log->durable_floor, floor);
        room_made_ += log->ring.free_below(log->durable_floor);
    }
}

void IntentLog::fill(std::span<const RowIntent> rows, const IntentHeader& header, Batch& batch) const
{
    batch.descriptors = AlignedBuffer(batch.parts.size() * kBlockBytes);
    uint32_t block = batch.first_block;
    std::vector<IntentEntry> entries;
    for (size_t part = 0; part < batch.parts.size(); ++part) {
        IntentHeader own = header;
        own.member = batch.member;
        own.block = block++;
        std::byte* const descriptor = batch.descriptors.data() + part * kBlockBytes;
        batch.vectors.push_back({descriptor, kBlockBytes});
        entries.clear();
        const std::span<const Batch::Item> items(batch.items);
        for (const Batch::Item& item :
             items.subspan(batch.parts[part].first_item, batch.parts[part].item_count)) {
            const RowIntent& row = rows[item.row];
            IntentEntry& entry = entries.emplace_back();
            entry.sequence = row.sequence;
            entry.row = row.row;
            entry.mapping_version = row.mapping_version;
            entry.parity_column = item.copy->parity_column;
            entry.partial_block = block++;
            entry.partial_checksum = checksum_of({item.copy->partial, kBlockBytes});
            entry.checksums.assign(row.checksums.begin(), row.checksums.end());
            entry.modified = row.modified;
            batch.vectors.push_back({const_cast<std::byte*>(item.copy->partial), kBlockBytes});
        }
        encode_intent_block(own, entries, {descriptor, kBlockBytes});
    }
}

// Writes every batch whose member is in service, durably; the others have failed. kTooManyFaults: too many of
// them.
Status IntentLog::write(std::span<Batch> batches)
{
    MemberBatch writes(members_, MemberCounter::kWriteErrors);
    std::vector<Batch*> asked;
    for (Batch& batch : batches) {
        const IoRequest request{
            .kind = IoKind::kWrite, .offset = batch.offset, .vectors = batch.vectors, .durable = true};
        batch.failed = batch.failed || !writes.add(batch.member, request);
        if (!batch.failed)
            asked.push_back(&batch);
    }
    const Status status = writes.run("write-intent log");
    for (size_t index = 0; index < asked.size(); ++index)
        asked[index]->failed = !writes.ok(index);
    return status;
}

Status IntentLog::append(std::span<RowIntent> rows, Generation generation, uint64_t epoch)
{
    CW_ASSERT(rows.size() <= kMaxBatchRows);
    if (members_.stopped())
        return Err::kTooManyFaults;
    IntentHeader header;
    header.volume_uuid = volume_uuid_;
    header.epoch = epoch;
    header.generation = generation;
    std::vector<Batch> batches;
    Status planned;
    uint64_t room_before;
    do {
        room_before = room_made();
        planned = plan(rows, batches);
    } while (planned.err() == Err::kNoSpace && make_room(header, room_before));
    CW_TRY(planned);
    {
        MutexLock lock(mutex_);
        header.floor = floor_;
    }
    for (Batch& batch : batches)
        fill(rows, header, batch);
    Status status = write(batches);
    if (status.ok())
        settle(batches, header.floor);
    const bool whole =
        std::none_of(batches.begin(), batches.end(), [](const Batch& one) { return one.failed; });
    if (status.ok() && !whole)
        status = Err::kIo;
    for (const RowIntent& row : rows)
        if (!status.ok())
            written(row.sequence);
    return status;
}

void IntentLog::written(uint64_t sequence)
{
    MutexLock lock(mutex_);
    CW_ASSERT(unwritten_.erase(sequence) == 1);
}

uint64_t IntentLog::flush_covers() const
{
    MutexLock lock(mutex_);
    return unwritten_.empty() ? next_sequence_ : *unwritten_.begin();
}

void IntentLog::retire(uint64_t covered)
{
    MutexLock lock(mutex_);
    CW_ASSERT(covered <= next_sequence_ && (unwritten_.empty() || covered <= *unwritten_.begin()));
    floor_ = std::max(floor_, covered);
}

bool IntentLog::hold(MemberId member, DeviceOffset first, uint64_t bytes)
{
    MutexLock lock(mutex_);
    MemberLog* const log = find(member);
    return log != nullptr && log->ring.hold(first, bytes, floor_);
}

void IntentLog::release(MemberId member, DeviceOffset first)
{
    MutexLock lock(mutex_);
    if (MemberLog* const log = find(member); log != nullptr)
        log->ring.release(first);
    ++room_made_;
    room_changed_.notify_all();
}

LogUsage IntentLog::usage() const
{
    MutexLock lock(mutex_);
    LogUsage usage;
    for (const MemberLog& log : logs_) {
        uint32_t used = 0;
        for (const MemberRing::Segment& segment : log.ring.segments())
            used += segment.last >= floor_ && segment.block_count > 1 ? segment.block_count : 0;
        if (used >= usage.used_blocks)
            usage = {used, log.ring.block_count()};
    }
    return usage;
}

}  // namespace cowraid
