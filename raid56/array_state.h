// SPDX-License-Identifier: MIT
// What the operations of the array share. Private to raid56/.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "base/buffer.h"
#include "base/mutex.h"
#include "base/set_once.h"
#include "device/member_set.h"
#include "format/intent_codec.h"
#include "raid56/array.h"
#include "raid56/buffer_pool.h"
#include "raid56/group_table.h"
#include "raid56/stripe_lock.h"

namespace cowraid {

struct PartialWrites;

// Rows as recovery would have left them, on a read-only array: all columns, by address of data column 0.
struct RecoveredRows : RefCounted<RecoveredRows> {
    struct Row {
        AlignedBuffer content;
        ColumnBits kept;  // data blocks in use: writes in place did not touch them
    };
    std::unordered_map<uint64_t, Row> rows;
};

struct ArrayState final : FailurePolicy {
    explicit ArrayState(MemberSet& member_set);
    ~ArrayState() override;

    MemberSet& members;
    std::atomic<BlockVerifier*> verifier{nullptr};
    std::atomic<bool> read_only{false};
    std::atomic<bool> filling{false};  // stale columns
    GroupTable groups;
    StripeLocks stripe_locks;
    BufferPool buffers;

    // Null, but after a crash on a read-only array. An immutable state; replaced, never changed.
    Mutex recovered_mutex{LockRank::kLeaf};
    Ref<RecoveredRows> recovered CW_GUARDED_BY(recovered_mutex);
    [[nodiscard]] Ref<RecoveredRows> recovered_rows();

    struct Counters {
        std::atomic<uint64_t> full_stripes{0}, full_rows{0}, pad_blocks{0};
        std::atomic<uint64_t> data_bytes_written{0}, member_bytes_written{0};
        std::atomic<uint64_t> blocks_read{0}, blocks_reconstructed{0}, blocks_repaired{0};
        std::atomic<uint64_t> blocks_unrecoverable{0};
    } counters;

    // As Array::missing_columns().
    [[nodiscard]] uint32_t missing_columns(const ArrayGroup& group) const;
    [[nodiscard]] bool whole() const override;
    // False when some group with a column on them would then miss more columns than it tolerates.
    [[nodiscard]] bool can_do_without(std::span<const MemberId> leaving) const override;

    // Null until writes in place are started. Last: its threads use everything above.
    SetOnce<PartialWrites> partial;
};

inline void bump(std::atomic<uint64_t>& counter, uint64_t amount)
{
    counter.fetch_add(amount, std::memory_order_relaxed);
}

inline uint64_t count_of(const std::atomic<uint64_t>& counter)
{
    return counter.load(std::memory_order_relaxed);
}

// Where one block of a stripe is. The rest of its chunk follows contiguously. `device` is null while the
// member is not in service.
struct BlockLocation {
    MemberId member;
    BlockDevice* device = nullptr;
    DeviceOffset offset;
    bool stale = false;  // may hold old content: verified like any other, and nobody's fault
    bool blank = false;  // stale: of a device that had nothing of the group, but what was written to it since
};

BlockLocation locate_block(const ArrayState& state, const ArrayGroup& group, const BlockPlace& place,
                           uint32_t copy);

// The address of a block, parity blocks included.
inline VolumeAddress address_of(const ArrayGroup& group, const BlockPlace& place)
{
    return group.record.address + offset_of(group.geometry, place);
}

}  // namespace cowraid
