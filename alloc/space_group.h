// SPDX-License-Identifier: MIT
// One block group of the allocator: its two views, what happened since they were recorded, and its locks.
//
//   free_blocks(), allocate() -> deltas per transaction -> collect() -> record_, pins -> release() -> space_
//
// Locks: `mutex` guards everything but the recorded view, which `record_mutex` guards, so that recording a
// large commit does not hold up writers. They are never held together.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "alloc/group_space.h"
#include "alloc/recorded_space.h"
#include "base/mutex.h"
#include "base/ref.h"

namespace cowraid {

// What groups in one state offer.
template <typename Count> struct GroupOffer {
    Count row_blocks{0};  // in rows that hold nothing
    Count stripe_blocks{0};  // the part of them in stripes that hold nothing
    Count partial_row_blocks{0};
};

// Sums over groups of the same content, kept up to date by the groups themselves.
struct ContentTotals {
    std::atomic<uint64_t> total_blocks{0};
    std::atomic<uint64_t> used_blocks{0};
    std::atomic<uint64_t> pinned_blocks{0};
    std::atomic<uint64_t> returning_blocks{0};  // pinned, in groups that are open or degraded
    std::atomic<uint64_t> avoided_row_blocks{0};  // of `open`, in groups that are avoided
    std::atomic<uint64_t> whole_blocks{0};  // of total_blocks, in groups that are open or planned
    GroupOffer<std::atomic<uint64_t>> open, degraded;
};

enum class BitmapLoad : uint8_t {
    kWithinLimit,
    kForRoom,  // beyond the limit: writers were admitted against the room of the group
    kInAnyCase,  // what a commit has to record of a group may not be refused
};

enum class BitmapRoom : uint8_t {
    kCounted,
    kNotNow,  // taken by groups that cannot be dropped
    kTooLarge,  // for this limit
};

// Who knows what the bitmaps of all groups take.
class BitmapMemory {
public:
    virtual ~BitmapMemory() = default;
    // Counts the bytes of one more group, or says why they must not be taken. Drops bitmaps of idle groups
    // first.
    virtual BitmapRoom make_room(uint64_t bytes, BitmapLoad load) = 0;
};

class SpaceGroup : public RefCounted<SpaceGroup> {
public:
    using State = Allocator::GroupState;

    // `totals` outlives the group.
    SpaceGroup(const GroupRecord& record, const GroupUsage& usage, State state, ContentTotals& totals);

    [[nodiscard]] VolumeAddress address() const { return address_; }
    [[nodiscard]] uint32_t content() const { return content_; }
    [[nodiscard]] const Geometry& geometry() const { return geometry_; }
    // Index of the data block at `address`; ~0 when it is no data block of this group.
    [[nodiscard]] uint64_t block_of(VolumeAddress address) const;
    // Hints, read without a lock.
    [[nodiscard]] uint64_t free_rows() const { return free_rows_hint_.load(std::memory_order_relaxed); }
    [[nodiscard]] uint64_t free_stripes() const { return free_stripes_hint_.load(std::memory_order_relaxed); }
    [[nodiscard]] uint64_t partial_row_blocks() const
    {
        return partial_rows_hint_.load(std::memory_order_relaxed);
    }
    [[nodiscard]] uint64_t last_used() const { return last_used_.load(std::memory_order_relaxed); }
    void note_use(uint64_t tick) { last_used_.store(tick, std::memory_order_relaxed); }
    // Asked after all that are not.
    [[nodiscard]] bool avoided() const { return avoided_.load(std::memory_order_relaxed); }
    void set_avoided(bool avoided);

    void set_state(State state);
    void degrade();
    // Leaves the allocator. kBusy while anything is used or pinned.
    Status retire();
    [[nodiscard]] bool empty();

    [[nodiscard]] GroupNumbers numbers();
    // The first `wanted` live blocks of `within`, which may end behind the group. False: the group is not
    // loaded.
    bool live_blocks(const BlockRange& within, uint64_t wanted, std::vector<BlockRange>& out);
    // Appends the blocks of a range that were freed and may not be allocated yet, in runs.
    void pinned_blocks(const BlockRange& within, std::vector<BlockRange>& out);
    // As GroupSpace::sparse_units(). False: the group is not loaded.
    bool sparse_units(uint32_t unit_blocks, uint32_t most, uint64_t unit_count,
                      std::vector<std::vector<VolumeAddress>>& out);

    // As Allocator::hold_stripes(). False: the group is not loaded.
    bool hold_stripes(Allocator::Hold which, uint64_t shortest, uint64_t most, Allocator::HoldWalk& walk,
                      std::vector<StripeRun>& out);
    void let_go(const StripeRun& stripes, Allocator::LetGo as);
    // A hint: stripes became free since it was loaded.
    [[nodiscard]] bool has_freed() const { return has_freed_.load(std::memory_order_relaxed); }

    // Reads the recorded windows unless that is done; waits for another thread that does it. No lock is held
    // while `source` works. kNoMemory: `memory` has no room for its bitmaps now; the group is as before.
    Status ensure_loaded(SpaceSource& source, BitmapMemory& memory, BitmapLoad load);
    // Forgets the loaded state if it can be read again. Returns the bytes still held.
    uint64_t evict();
    // Between the two evict() leaves it alone.
    void keep() { kept_.fetch_add(1); }
    void let_evict() { kept_.fetch_sub(1); }
    [[nodiscard]] uint64_t memory_bytes();

    enum class Pass : uint8_t { kStripes, kFragments };
    enum class TakeResult : uint8_t {
        kTaken,  // regions were added to the request; end with commit_take() or cancel_take()
        kNothing,
        kNotLoaded,
    };
    TakeResult take(Pass pass, SpaceRequest& request);
    // Up to `wanted` blocks of rows that hold others, on behalf of `transaction`; adds what it took to
    // `taken`.
    TakeResult take_of_partial_rows(uint64_t wanted, TransactionId transaction, std::vector<BlockRange>& out,
                                    uint64_t& taken);
    void commit_take(std::span<const RowRegion> regions, TransactionId transaction);
    void cancel_take(std::span<const RowRegion> regions);

    Status free_blocks(const BlockRange& range, TransactionId transaction);
    void note_rewritten(uint64_t block, TransactionId transaction);

    [[nodiscard]] bool has_deltas(TransactionId transaction);
    // The group is loaded.
    void collect(TransactionId transaction, std::vector<SpaceWindow>& windows,
                 std::vector<GroupUsage>& usages);
    void release(TransactionId transaction, Generation generation);
    void release_only(TransactionId transaction);
    // The group is loaded, or kBusy: it was evicted just now.
    Result<bool> is_used(uint64_t block);

private:
    friend class RefCounted<SpaceGroup>;
    ~SpaceGroup() = default;

    enum class LoadState : uint8_t {
        kUnloaded,
        kChanging,
        kLoaded,
        kUnreadable,  // the last time it was tried
        kCorrupt,  // for good: what is recorded contradicts itself
    };
    // What a transaction did that is not collected yet. No block is freed and allocated again before it was
    // released, so that the order inside is: all allocations, then all frees.
    struct Delta {
        TransactionId transaction;
        std::vector<BlockRange> allocated;
        std::vector<BlockRange> freed;
        std::vector<BlockRange> rewritten;
    };
    // Collected frees that wait for release.
    struct Pins {
        TransactionId transaction;
        std::vector<BlockRange> ranges;  // rising
        size_t released = 0;  // ranges already released
    };
    struct Loaded {
        std::unique_ptr<GroupSpace> space;
        std::unique_ptr<RecordedSpace> record;
    };

    [[nodiscard]] bool broken() const CW_REQUIRES(mutex_)
    {
        return load_state_ == LoadState::kUnreadable || load_state_ == LoadState::kCorrupt;
    }
    // kCorrupt when the windows contradict themselves or their summary.
    Result<Loaded> read_windows(SpaceSource& source, const GroupUsage& expected) const;
    [[nodiscard]] uint64_t loaded_bytes() const;  // at most
    void install(Loaded loaded);
    Delta& delta_of(TransactionId transaction) CW_REQUIRES(mutex_);
    void apply_early_frees() CW_REQUIRES(mutex_);
    // Frees of `first` to `last` become free rows, at most a bounded number per call. True: call again.
    bool release_some(TransactionId first, TransactionId last);
    [[nodiscard]] bool clean() const CW_REQUIRES(mutex_);
    // What it offers, or would if it were open.
    [[nodiscard]] GroupOffer<uint64_t> offer() const CW_REQUIRES(mutex_);
    // Brings hints and totals in line with the fields below.
    void publish() CW_REQUIRES(mutex_);

    const VolumeAddress address_;
    const uint32_t content_;
    const Geometry geometry_;
    ContentTotals& totals_;
    std::atomic<uint64_t> free_rows_hint_{0};
    std::atomic<uint64_t> free_stripes_hint_{0};
    std::atomic<uint64_t> partial_rows_hint_{0};
    std::atomic<uint64_t> last_used_{0};
    std::atomic<bool> avoided_{false};
    std::atomic<bool> has_freed_{false};
    std::atomic<uint32_t> kept_{0};
    std::atomic<bool> dirty_{false};  // has deltas, or collected changes that are not released

    Mutex mutex_{LockRank::kGroupSpace};
    CondVar loaded_changed_;
    State state_ CW_GUARDED_BY(mutex_);
    bool retired_ CW_GUARDED_BY(mutex_) = false;
    LoadState load_state_ CW_GUARDED_BY(mutex_) = LoadState::kUnloaded;
    std::unique_ptr<GroupSpace> space_ CW_GUARDED_BY(mutex_);
    GroupUsage recorded_ CW_GUARDED_BY(mutex_);  // as last collected
    uint64_t free_rows_ CW_GUARDED_BY(mutex_) = 0;
    uint64_t free_stripes_ CW_GUARDED_BY(mutex_) = 0;
    uint64_t live_blocks_ CW_GUARDED_BY(mutex_);
    uint64_t pinned_blocks_ CW_GUARDED_BY(mutex_) = 0;
    uint64_t takes_ CW_GUARDED_BY(mutex_) = 0;  // calls of take() not ended yet
    uint64_t held_stripes_ CW_GUARDED_BY(mutex_) = 0;
    std::vector<Delta> deltas_ CW_GUARDED_BY(mutex_);
    std::vector<Pins> pins_ CW_GUARDED_BY(mutex_);
    TransactionId collected_ CW_GUARDED_BY(mutex_);
    bool unreleased_ CW_GUARDED_BY(mutex_) = false;  // collected_ is not released
    // What totals_ contains of this group.
    uint64_t published_used_ CW_GUARDED_BY(mutex_) = 0;
    uint64_t published_pinned_ CW_GUARDED_BY(mutex_) = 0;
    uint64_t published_returning_ CW_GUARDED_BY(mutex_) = 0;
    uint64_t published_avoided_ CW_GUARDED_BY(mutex_) = 0;
    uint64_t published_whole_ CW_GUARDED_BY(mutex_) = 0;
    GroupOffer<uint64_t> published_open_ CW_GUARDED_BY(mutex_);
    GroupOffer<uint64_t> published_degraded_ CW_GUARDED_BY(mutex_);

    Mutex record_mutex_{LockRank::kGroupSpace};
    std::unique_ptr<RecordedSpace> record_ CW_GUARDED_BY(record_mutex_);
};

}  // namespace cowraid
