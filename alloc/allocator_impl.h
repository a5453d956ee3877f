// SPDX-License-Identifier: MIT
// What the allocator's operations share.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "alloc/allocator.h"
#include "alloc/space_group.h"
#include "base/mutex.h"
#include "base/ref.h"

namespace cowraid {

// The groups by rising address. Shared by whoever looks at them; copied before a change while it is.
struct SpaceGroupList : RefCounted<SpaceGroupList> {
    std::vector<Ref<SpaceGroup>> groups;

    // Index of the first group at or behind `address`.
    [[nodiscard]] size_t lower_bound(VolumeAddress address) const;
};

// One try to serve a request: what was taken from which group, in order.
struct Attempt {
    struct Take {
        SpaceGroup* group;
        size_t region_end;  // its regions end here, and begin where the take before ended
    };
    SpaceRequest request;
    std::vector<Take> takes;
    SpaceGroup* unloaded = nullptr;  // must be loaded before trying again
};

struct Allocator::Impl final : BitmapMemory {
    explicit Impl(SpaceSource& space_source) : source(space_source) { }

    [[nodiscard]] Ref<SpaceGroupList> snapshot();
    // Null when no group has `address` among its data.
    [[nodiscard]] Ref<SpaceGroup> find(VolumeAddress address);
    void insert(Ref<SpaceGroup> group);
    void erase(const SpaceGroup& group);
    Status load(SpaceGroup& group);
    bool make_room(uint64_t bytes) override;
    uint64_t evict_idle(uint64_t budget_bytes);

    // One attempt with the other attempts kept out or not, so that no two of them fail because each
    // holds half of what is left.
    Status attempt_shared(const SpaceGroupList& list, Attempt& attempt, TransactionId transaction);
    Status attempt_alone(const SpaceGroupList& list, Attempt& attempt, TransactionId transaction);
    Status attempt_once(const SpaceGroupList& list, Attempt& attempt, TransactionId transaction);
    // Asks the groups in turn from the stream's current one. False: attempt.unloaded must be loaded first.
    bool take_from_groups(const SpaceGroupList& list, SpaceGroup::Pass pass, Attempt& attempt);
    void finish(const Attempt& attempt, TransactionId transaction);
    static void cancel(const Attempt& attempt);

    SpaceSource& source;
    RwLock list_lock{LockRank::kAllocator};
    Ref<SpaceGroupList> list CW_GUARDED_BY(list_lock) = make_ref<SpaceGroupList>();
    RwLock attempt_lock{LockRank::kAllocator};  // never together with list_lock
    std::array<std::atomic<uint64_t>, kStreamCount> current_group{};  // address, by stream
    std::atomic<uint64_t> clock{1};  // ticks at every use of a group
    std::array<ContentTotals, 8> totals;  // by content bits
    std::atomic<uint64_t> memory_limit{~uint64_t{0}};
    std::atomic<uint64_t> memory_bytes{0};  // of loaded groups at most
    std::atomic<uint64_t> full_stripes{0};
    std::atomic<uint64_t> full_rows{0};
    std::atomic<uint64_t> pad_blocks{0};
    std::atomic<uint64_t> joined_blocks{0};
    std::atomic<uint64_t> hole_group{0};  // address of the group that gave holes last
};

}  // namespace cowraid
