// SPDX-License-Identifier: MIT
// The write-intent log: what makes it safe to write a row in place although it holds committed blocks. The
// rule is that of docs/DESIGN.md, "Partial rows": before the first such write an entry is durable on the
// member of every parity column of the row.
#pragma once

#include <atomic>
#include <set>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "device/member_set.h"
#include "format/intent_codec.h"
#include "format/superblock_codec.h"
#include "journal/member_ring.h"

namespace cowraid {

// A row about to be written in place.
struct RowIntent {
    VolumeAddress row;  // of the row's block in data column 0
    uint32_t mapping_version = 0;
    std::span<const Checksum> checksums;  // of all data blocks as they will be, by column
    ColumnBits modified;  // blocks written since all members were last flushed, these writes included
    struct Copy {
        MemberId member;
        uint32_t parity_column = 0;
        const std::byte* partial = nullptr;  // 4096 aligned bytes: parity with zeros for modified blocks
    };
    std::span<const Copy> copies;  // one per parity column whose member is in service
    uint64_t sequence = 0;  // out
};

class IntentLog {
public:
    // Rows of one append(), at most: no log is asked to take more.
    static constexpr size_t kMaxBatchRows = 64;

    // `superblock` says where the logs are. Numbering begins at `first_sequence`, above all that a scan
    // found.
    IntentLog(MemberSet& members, const Superblock& superblock, uint64_t first_sequence);

    // Before a block group with a column on that member is written to. Thread-safe.
    void add_member(const MemberRecord& record);

    // How many rows to give to one append(): every log has room for several such batches.
    [[nodiscard]] size_t batch_rows() const { return batch_rows_.load(std::memory_order_relaxed); }

    // Makes the entries durable: one sequential, durable write per member. No row may be in two calls at
    // once. Ok when every copy is durable. kIo when some are not: their members are counted and out of
    // service, try again without them. kTooManyFaults: the volume cannot do without them. kNoSpace, with
    // nothing written: room comes with retire(). Thread-safe; calls run side by side.
    Status append(std::span<RowIntent> rows, Generation generation, uint64_t epoch);
    // All in-place writes of the row are done, flushed or not.
    void written(uint64_t sequence);

    // Before a flush of all members: what it will cover. To be handed to retire() once a commit that has the
    // checksums of those rows is durable (I-23).
    // Whoever acknowledges or commits on that flush keeps append() to written() of every row outside of it:
    // an entry that counts flushed blocks as modified cannot give them back.
    [[nodiscard]] uint64_t flush_covers() const;
    void retire(uint64_t covered);

    // Between a commit and the next in-place write of the commit thread, when all entries that are retired
    // are dead: blocks of the member's log without other entries. No append() takes them until release(), and
    // they can be overwritten; one that finds no other room waits, so that whoever holds them appends nothing
    // and waits for no commit. False: there are others, or no such log.
    bool hold(MemberId member, DeviceOffset first, uint64_t bytes);
    void release(MemberId member, DeviceOffset first);

    // What live entries take.
    [[nodiscard]] LogUsage usage() const;
    // Rows for which every log, when empty, surely has room, wherever their parity is.
    [[nodiscard]] uint64_t row_count_min() const { return row_count_min_.load(std::memory_order_relaxed); }

private:
    struct MemberLog {
        MemberRing ring;  // an append's blocks are needed until its last sequence is below the durable floor
        // The highest floor that a descriptor on this member makes durable. Blocks of entries below it may be
        // overwritten in any order; without it, a torn write could leave a retired entry without the newer
        // one of its row, and recovery would believe it.
        uint64_t durable_floor = 0;
        bool floor_on_its_way = false;
    };
    struct Batch;

    MemberLog* find(MemberId member) CW_REQUIRES(mutex_);
    Status plan(std::span<RowIntent> rows, std::vector<Batch>& batches);
    bool plan_floor(std::vector<Batch>& batches, IntentHeader& header);
    bool make_room(IntentHeader header, uint64_t room_before);
    void record_floor(IntentHeader header);
    uint64_t room_made() const;
    void settle(std::span<const Batch> batches, uint64_t floor);
    void fill(std::span<const RowIntent> rows, const IntentHeader& header, Batch& batch) const;
    Status write(std::span<Batch> batches);

    MemberSet& members_;
    const Uuid volume_uuid_;
    std::atomic<size_t> batch_rows_{kMaxBatchRows};  // changed under the mutex, as the next
    std::atomic<uint64_t> row_count_min_{UINT64_MAX};
    mutable Mutex mutex_{LockRank::kIntentLog};
    std::vector<MemberLog> logs_ CW_GUARDED_BY(mutex_);
    uint64_t next_sequence_ CW_GUARDED_BY(mutex_);
    uint64_t floor_ CW_GUARDED_BY(mutex_);
    uint64_t room_made_ CW_GUARDED_BY(mutex_) =
        0;  // segments freed, blocks released, and writes whose member left
    CondVar room_changed_;
    std::set<uint64_t> unwritten_ CW_GUARDED_BY(mutex_);  // appended, in-place writes not done
};

}  // namespace cowraid
