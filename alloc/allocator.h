// SPDX-License-Identifier: MIT
// Free space by row and stripe. Hands out whole free rows, full stripes first; remembers what a commit must
// record and what may not be reused yet. Persists nothing itself: fs/commit does, with the windows below.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/ref.h"
#include "base/status.h"
#include "base/units.h"
#include "format/group_map_codec.h"
#include "format/tree_codec.h"
#include "format/window_codec.h"
#include "raid56/geometry.h"

namespace cowraid {

// Number of a transaction in memory: the open one, and the one being committed before it. Becomes a
// Generation only when its commit begins. `part`: of commits of checksums that come between a transaction and
// the next one (fs/commit/committer.h); 0 is the transaction itself.
struct TransactionId {
    uint64_t value = 0;
    uint64_t part = 0;
    friend constexpr auto operator<=>(TransactionId, TransactionId) = default;
};

// What an allocation is for; each stream has its own open stripe, so that lifetimes do not mix.
enum class Stream : uint8_t {
    kData,
    kMetadata,
    kSystem,
    kMoved,  // data that survived where most of its neighbours died
};
inline constexpr size_t kStreamCount = 4;

// Rows to be written by raid56::RowWrite. Blocks are used in (stripe, data column, row) order; the first
// `used_blocks` carry data, the rest of the rectangle is pads.
struct RowRegion {
    VolumeAddress group_address;
    Geometry geometry;
    uint64_t first_stripe = 0;
    uint64_t stripe_count = 1;
    uint32_t first_row = 0;
    uint32_t row_count = 0;
    uint64_t used_blocks = 0;

    // Address of the i-th block in that order.
    [[nodiscard]] VolumeAddress block_address(uint64_t index) const;
    // Blocks of the rectangle: stripe_count * k * row_count.
    [[nodiscard]] uint64_t block_count() const;
};

// Stripes covered by one window: as many whole stripes as fit 2048 blocks, at least one.
uint64_t window_stripes(const Geometry& geometry);

// The seam to the free-space tree: reads a group's windows at first use. Implemented by fs/. Called with no
// allocator lock that a reader of trees needs.
class SpaceSource {
public:
    virtual ~SpaceSource() = default;
    // Appends every recorded window of the group, by rising first_stripe; absent ones are free.
    virtual Status load_windows(VolumeAddress group_address, std::vector<SpaceWindow>& out) = 0;
};

struct SpaceNumbers {
    uint64_t total_blocks;  // of the groups of that content
    uint64_t used_blocks;  // referenced by the open state: allocated and not freed
    uint64_t free_row_blocks;  // in rows of open groups that hold nothing: what can be written now
    uint64_t free_stripe_blocks;  // the part of them in stripes that hold nothing
    uint64_t partial_row_blocks;  // free blocks in the other rows of open data groups with parity
    uint64_t pinned_blocks;  // freed, not reusable yet
    uint64_t returning_blocks;  // of these, in groups that are open or degraded
    // As free_row_blocks, free_stripe_blocks and partial_row_blocks, of degraded groups.
    uint64_t degraded_row_blocks, degraded_stripe_blocks, degraded_partial_row_blocks;
    uint64_t avoided_row_blocks;  // of free_row_blocks, in groups that are avoided
    uint64_t whole_blocks;  // of total_blocks, in groups that are open or planned
};

// One block group, for who chooses among them.
struct GroupNumbers {
    VolumeAddress address;
    uint64_t total_blocks;
    uint64_t live_blocks;  // referenced by the open state
    uint64_t pinned_blocks;  // freed, not reusable yet
    uint64_t free_row_blocks;  // in rows that hold nothing; of those:
    uint64_t free_stripe_blocks;  // in stripes that hold nothing
    uint64_t partial_row_blocks;  // as in SpaceNumbers; of open and degraded groups
    bool planned;
    bool degraded;  // its state is kDegraded
    bool closed;  // its state is kClosed
    bool broken;  // its allocation state cannot be read

    // Takes blocks.
    [[nodiscard]] bool open() const { return !planned && !degraded && !closed && !broken; }
};

struct AllocationStatistics {
    uint64_t full_stripes, full_rows, pad_blocks;
    uint64_t joined_blocks;  // put into rows that hold others
};

// Neighbouring stripes of one group.
struct StripeRun {
    uint64_t first = 0;
    uint64_t count = 0;
};

// Blocks of contiguous addresses inside one group.
struct BlockRun {
    VolumeAddress address;
    uint32_t block_count = 0;
};

class SpaceGroup;

class Allocator {
public:
    // `source` outlives the allocator.
    explicit Allocator(SpaceSource& source);
    ~Allocator();
    Allocator(const Allocator&) = delete;
    Allocator& operator=(const Allocator&) = delete;

    enum class GroupState : uint8_t {
        kPlanned,  // in the map of a commit that is not durable yet: takes nothing
        kOpen,
        kClosed,  // takes no new data: it is being emptied, or leaves
        kDegraded,  // takes no new data until it is opened: a member is missing
    };
    // `usage` as recorded; with no used block the group is all free, whatever else it says. A group whose
    // windows turn out not to add up to it gives no space.
    void add_group(const GroupRecord& group, const GroupUsage& usage, GroupState state);
    void set_group_state(VolumeAddress group_address, GroupState state);
    // An avoided group takes blocks only when no other has room. Ignored when there is no such group.
    void set_avoided(VolumeAddress group_address, bool avoided);
    // A member of the group is missing: kOpen becomes kDegraded, other states stay.
    void degrade_group(VolumeAddress group_address);
    // Only when nothing of it is used or pinned; kBusy otherwise.
    Status remove_group(VolumeAddress group_address);

    // `unit_count` units of `unit_blocks` blocks each (1 for data, 4 for nodes); the blocks of a unit have
    // contiguous addresses. Whole stripes first, contiguous; the tail in as few rows as possible of the
    // stream's open stripe, which the next call continues; free rows of used stripes when no stripe is
    // free. The blocks are used from now on, on behalf of `transaction`. kNoSpace: nothing was taken.
    // Single blocks are refused only when fewer free rows exist than they fill. Units of several blocks need
    // them in one column of neighbouring rows (of neighbouring stripes, whole and free, where a chunk is
    // shorter than a unit): what such runs leave over is not used for them.
    // Thread-safe; reads the space source at most for groups it turns to (no lock held then).
    Status allocate(Stream stream, uint32_t unit_blocks, uint64_t unit_count, TransactionId transaction,
                    std::vector<RowRegion>& out);

    // Up to `block_count` single data blocks in rows that hold other blocks (Array::write_blocks()), in runs
    // of one chunk, used from now on, on behalf of `transaction`. Returns how many there are in `out`.
    // Thread-safe; reads the source like allocate().
    uint64_t allocate_in_partial_rows(uint64_t block_count, TransactionId transaction,
                                      std::vector<BlockRun>& out);

    // The open state no longer refers to these blocks, which lie in one group. They stay unusable until
    // release(). kCorrupt: they are not all used, nothing was changed; a group that is not in memory is not
    // read for this, then the call succeeds and only what is used is freed. Thread-safe.
    Status free_blocks(VolumeAddress address, uint64_t block_count, TransactionId transaction);

    // Takes free stripes of an open group out of use for a while, and appends them as runs, `most` in all or
    // fewer: those that became free since the group was loaded and were not taken since, or all. Runs of less
    // than `shortest` are left out; several calls may take a longer one in pieces. Nothing is recorded of it.
    // Loads the group.
    enum class Hold : uint8_t { kFreed, kAll };
    // Where calls go on, one after the other.
    struct HoldWalk {
        uint64_t stripe = 0;  // 2^64 - 1: there are no more
        uint64_t end = UINT64_MAX;  // of the stripes that may be taken
        uint64_t run_end = 0;  // of the last run that was long enough
    };
    Status hold_stripes(VolumeAddress group_address, Hold which, uint64_t shortest, uint64_t most,
                        HoldWalk& walk, std::vector<StripeRun>& out);
    // They may be used again; kFreed: they count as having become free. Thread-safe.
    enum class LetGo : uint8_t { kDiscarded, kFreed };
    void let_go(VolumeAddress group_address, const StripeRun& stripes, LetGo as);

    // On behalf of `transaction` free blocks or parity in the row of this data block were written and
    // recorded anew: its window's last write. Ignored when the address belongs to no group. Thread-safe.
    void note_rewritten(VolumeAddress address, TransactionId transaction);

    // Commit side: collect() and release() are called by one thread at a time. Applies everything that
    // happened on behalf of `transaction` or earlier to the recorded state and returns the windows and
    // summaries that changed since the last call for the same or an earlier transaction. May be called again
    // in the same commit after further allocations (the loop of design 5.5); a window is returned again only
    // when it changed again. Fails, with nothing applied, when a changed group's state cannot be read.
    Status collect(TransactionId transaction, std::vector<SpaceWindow>& windows,
                   std::vector<GroupUsage>& usages);
    // The commit of `transaction` is durable and no reader uses an older one: its frees, and those of earlier
    // ones, become free rows. last_write of the windows they wrote becomes `generation`.
    void release(TransactionId transaction, Generation generation);
    // Nobody reads what was freed on behalf of `transaction`, and a commit of a higher part of it is durable:
    // these frees alone become free rows.
    void release_only(TransactionId transaction);

    [[nodiscard]] SpaceNumbers numbers(uint32_t content) const;
    [[nodiscard]] AllocationStatistics statistics() const;
    // Groups of which nothing is used or pinned: candidates for giving their slots back.
    [[nodiscard]] std::vector<VolumeAddress> empty_groups(uint32_t content) const;
    // Every group of that content, by rising address.
    [[nodiscard]] std::vector<GroupNumbers> group_numbers(uint32_t content) const;
    // Nothing when no group begins there.
    [[nodiscard]] std::optional<GroupNumbers> numbers_of(VolumeAddress group_address) const;
    // Appends the first `block_count` or fewer blocks from `from` on that the open state refers to, all of
    // the group of `from`, in runs of contiguous addresses. Loads the group.
    Status live_blocks(VolumeAddress from, uint64_t block_count, std::vector<BlockRun>& out);
    // Appends units of `unit_blocks` contiguous blocks that the open state refers to and that keep the rows
    // they are in from being free, together with fewer others than fit beside each other: those with the
    // fewest first, at most `unit_count`, out of rows that are full to `percent` or less. Of open groups of
    // that content with parity. Loads them.
    void sparse_units(uint32_t content, uint32_t unit_blocks, uint32_t percent, uint64_t unit_count,
                      std::vector<VolumeAddress>& out);
    // Appends those of a run of one group's blocks that the open state refers to, in runs. Reads nothing:
    // kBusy when the group is not in memory; kInvalid: not data addresses of a group. An answer stands as
    // long as nobody frees or allocates.
    Status live_in(const BlockRun& run, std::vector<BlockRun>& out);
    // The same for blocks that were freed and may not be allocated yet, since a reader needs them or the
    // commit is to come; also of a group that is not in memory.
    Status pinned_in(const BlockRun& run, std::vector<BlockRun>& out);
    // Whether the recorded or open state uses the block; for check and repair. Loads the group, whatever that
    // takes where the answer must be had. kInvalid: not a data address of any group.
    enum class Ask : uint8_t { kWithinLimit, kInAnyCase };
    Result<bool> is_used(VolumeAddress address, Ask how = Ask::kWithinLimit);
    // While one lives the group stays in memory once it is loaded.
    class Kept {
    public:
        Kept(Allocator& allocator, VolumeAddress group_address);
        explicit Kept(SpaceGroup* group);  // may be null
        ~Kept();
        Kept(const Kept&) = delete;
        Kept& operator=(const Kept&) = delete;

    private:
        Ref<SpaceGroup> group_;
    };
    // Drops the bitmaps of groups without open changes, the longest unused first, until those in memory take
    // at most `budget_bytes`. Returns the bytes they take then. Thread-safe.
    uint64_t evict_idle(uint64_t budget_bytes);
    // What the bitmaps of all groups in memory may take, about; 2^64 - 1 without a call. Beyond it groups
    // without open changes are dropped. Allocations and commits load the groups they need beyond it; others
    // get kNoMemory while groups that cannot be dropped take more. A group whose bitmaps are larger than the
    // limit and than those of 255 columns of 1 GiB counts as one whose free space cannot be read. Before the
    // first use.
    void set_memory_limit(uint64_t bytes);

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace cowraid
