// SPDX-License-Identifier: MIT
#include "alloc/allocator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <forward_list>
#include <utility>

#include "alloc/space_group.h"
#include "base/assert.h"

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
    Status load(SpaceGroup& group, BitmapLoad load = BitmapLoad::kWithinLimit);
    BitmapRoom make_room(uint64_t bytes, BitmapLoad load) override;
    uint64_t evict_idle(uint64_t budget_bytes);

    // One allocation: asks the groups for stripes, then for fragments; all or nothing. kBusy:
    // attempt.unloaded must be loaded first.
    Status serve(const SpaceGroupList& list, Attempt& attempt, TransactionId transaction);
    // Asks the groups in turn from the stream's current one. False: attempt.unloaded must be loaded first.
    bool take_from_groups(const SpaceGroupList& list, SpaceGroup::Pass pass, bool shared, bool avoided,
                          Attempt& attempt);
    void finish(const Attempt& attempt, TransactionId transaction);
    static void cancel(const Attempt& attempt);

    SpaceSource& source;
    RwLock list_lock{LockRank::kAllocator};
    Ref<SpaceGroupList> list CW_GUARDED_BY(list_lock) = make_ref<SpaceGroupList>();
    // Shared by attempts; the last one of a request keeps the others out, so that no two of them fail because
    // each holds half of what is left. Never together with list_lock.
    RwLock attempt_lock{LockRank::kAllocator};
    std::array<std::atomic<uint64_t>, kStreamCount> current_group{};  // address, by stream
    std::atomic<uint64_t> clock{1};  // ticks at every use of a group
    std::array<ContentTotals, 8> totals;  // by content bits
    std::atomic<uint64_t> memory_limit{~uint64_t{0}};
    std::atomic<uint64_t> memory_bytes{0};  // of loaded groups at most
    std::atomic<uint64_t> full_stripes{0};
    std::atomic<uint64_t> full_rows{0};
    std::atomic<uint64_t> pad_blocks{0};
    std::atomic<uint64_t> joined_blocks{0};
    std::atomic<uint64_t> partial_group{0};  // address of the group that gave blocks of partial rows last
};

namespace {

constexpr uint32_t kContentOfStream[kStreamCount] = {kGroupData, kGroupMetadata, kGroupSystem, kGroupData};
// Beyond every volume; keeps the arithmetic far from overflow.
constexpr uint64_t kMaxUnits = uint64_t{1} << 48;
// What one group may take whatever the limit is: more than the bitmaps of 255 columns of 1 GiB.
constexpr uint64_t kUsualGroupBytes = 48 * kMiB;

bool may_have(const SpaceGroup& group, SpaceGroup::Pass pass, bool current)
{
    if (pass == SpaceGroup::Pass::kStripes && !current)
        return group.free_stripes() > 0;
    return group.free_rows() > 0;
}

// Cut where chunks end.
void append_runs(const SpaceGroup& group, const BlockRange& range, std::vector<BlockRun>& out)
{
    const uint32_t rows = group.geometry().rows();
    for (uint64_t block = range.first; block < range.end();) {
        const uint64_t end = std::min(range.end(), (block / rows + 1) * rows);
        out.push_back({group.address() + block * kBlockBytes, static_cast<uint32_t>(end - block)});
        block = end;
    }
}

void append_runs(const SpaceGroup& group, std::span<const BlockRange> ranges, std::vector<BlockRun>& out)
{
    for (const BlockRange& range : ranges)
        out.push_back({group.address() + range.first * kBlockBytes, static_cast<uint32_t>(range.count)});
}

}  // namespace

size_t SpaceGroupList::lower_bound(VolumeAddress address) const
{
    const auto found = std::lower_bound(
        groups.begin(), groups.end(), address,
        [](const Ref<SpaceGroup>& group, VolumeAddress wanted) { return group->address() < wanted; });
    return static_cast<size_t>(found - groups.begin());
}

Ref<SpaceGroupList> Allocator::Impl::snapshot()
{
    ReadLock lock(list_lock);
    return list;
}

Ref<SpaceGroup> Allocator::Impl::find(VolumeAddress address)
{
    ReadLock lock(list_lock);
    const size_t behind = list->lower_bound(address + 1);
    if (behind == 0)
        return {};
    Ref<SpaceGroup> group = list->groups[behind - 1];
    return group->block_of({round_down(address.value, kBlockBytes)}) == ~uint64_t{0} ? Ref<SpaceGroup>()
                                                                                     : group;
}

void Allocator::Impl::insert(Ref<SpaceGroup> group)
{
    WriteLock lock(list_lock);
    if (list->reference_count() > 1) {
        Ref<SpaceGroupList> copy = make_ref<SpaceGroupList>();
        copy->groups = list->groups;
        list = std::move(copy);
    }
    const size_t at = list->lower_bound(group->address());
    CW_ASSERT(at == list->groups.size() || list->groups[at]->address() != group->address());
    list->groups.insert(list->groups.begin() + static_cast<ptrdiff_t>(at), std::move(group));
}

void Allocator::Impl::erase(const SpaceGroup& group)
{
    WriteLock lock(list_lock);
    Ref<SpaceGroupList> copy = make_ref<SpaceGroupList>();
    for (const Ref<SpaceGroup>& other : list->groups) {
        if (other.get() != &group)
            copy->groups.push_back(other);
    }
    list = std::move(copy);
}

Status Allocator::Impl::load(SpaceGroup& group, BitmapLoad load)
{
    group.note_use(clock.fetch_add(1, std::memory_order_relaxed));
    return group.ensure_loaded(source, *this, load);
}

BitmapRoom Allocator::Impl::make_room(uint64_t bytes, BitmapLoad load)
{
    const uint64_t limit = memory_limit.load(std::memory_order_relaxed);
    if (bytes > std::max(limit, kUsualGroupBytes) && load != BitmapLoad::kInAnyCase)
        return BitmapRoom::kTooLarge;
    const uint64_t beside = limit - std::min(limit, bytes);
    if (memory_bytes.fetch_add(bytes, std::memory_order_relaxed) <= beside)
        return BitmapRoom::kCounted;
    const uint64_t left = evict_idle(beside);
    const bool counted = load != BitmapLoad::kWithinLimit || left <= limit;
    memory_bytes.store(counted ? left + bytes : left, std::memory_order_relaxed);
    return counted ? BitmapRoom::kCounted : BitmapRoom::kNotNow;
}

Allocator::Allocator(SpaceSource& source) : impl_(std::make_unique<Impl>(source)) { }

Allocator::~Allocator() = default;

void Allocator::add_group(const GroupRecord& group, const GroupUsage& usage, GroupState state)
{
    ContentTotals& totals = impl_->totals[group.content & kAllContent];
    impl_->insert(make_ref<SpaceGroup>(group, usage, state, totals));
}

void Allocator::set_group_state(VolumeAddress group_address, GroupState state)
{
    const Ref<SpaceGroup> group = impl_->find(group_address);
    CW_ASSERT(group && group->address() == group_address);
    group->set_state(state);
}

void Allocator::set_avoided(VolumeAddress group_address, bool avoided)
{
    if (const Ref<SpaceGroup> group = impl_->find(group_address); group)
        group->set_avoided(avoided);
}

void Allocator::degrade_group(VolumeAddress group_address)
{
    const Ref<SpaceGroup> group = impl_->find(group_address);
    CW_ASSERT(group && group->address() == group_address);
    group->degrade();
}

Status Allocator::remove_group(VolumeAddress group_address)
{
    const Ref<SpaceGroup> group = impl_->find(group_address);
    if (!group || group->address() != group_address)
        return Err::kNotFound;
    CW_TRY(group->retire());
    impl_->erase(*group);
    return {};
}

bool Allocator::Impl::take_from_groups(const SpaceGroupList& groups, SpaceGroup::Pass pass, bool shared,
                                       bool avoided, Attempt& attempt)
{
    SpaceRequest& request = attempt.request;
    const auto stream = static_cast<size_t>(request.stream);
    const VolumeAddress current = {current_group[stream].load(std::memory_order_relaxed)};
    const size_t count = groups.groups.size();
    const size_t start = groups.lower_bound(current);
    for (size_t step = 0; step < count && request.units > 0; ++step) {
        SpaceGroup& group = *groups.groups[(start + step) % count];
        if ((group.content() & kContentOfStream[stream]) == 0 || group.avoided() != avoided ||
            (group.content() != kContentOfStream[stream]) != shared ||
            !may_have(group, pass, group.address() == current))
            continue;
        group.note_use(clock.fetch_add(1, std::memory_order_relaxed));
        switch (group.take(pass, request)) {
        case SpaceGroup::TakeResult::kTaken:
            attempt.takes.push_back({&group, request.regions.size()});
            break;
        case SpaceGroup::TakeResult::kNothing:
            break;
        case SpaceGroup::TakeResult::kNotLoaded:
            attempt.unloaded = &group;
            return false;
        }
    }
    return true;
}

Status Allocator::Impl::serve(const SpaceGroupList& groups, Attempt& attempt, TransactionId transaction)
{
    bool asked_all = true;
    // What other streams cannot use comes first, avoided or not: who asks last finds room where there is any.
    const bool has_own =
        totals[kContentOfStream[static_cast<size_t>(attempt.request.stream)]].total_blocks.load() > 0;
    for (const bool shared : {false, true})
        for (const bool avoided : {false, true})
            for (const SpaceGroup::Pass pass : {SpaceGroup::Pass::kStripes, SpaceGroup::Pass::kFragments})
                if (shared || has_own)
                    asked_all = asked_all && take_from_groups(groups, pass, shared, avoided, attempt);
    if (asked_all && attempt.request.units == 0) {
        finish(attempt, transaction);
        return {};
    }
    cancel(attempt);
    return asked_all ? Err::kNoSpace : Err::kBusy;
}

void Allocator::Impl::finish(const Attempt& attempt, TransactionId transaction)
{
    const std::span<const RowRegion> regions(attempt.request.regions);
    size_t begin = 0;
    for (const Attempt::Take& take : attempt.takes) {
        take.group->commit_take(regions.subspan(begin, take.region_end - begin), transaction);
        begin = take.region_end;
    }
    for (const RowRegion& region : regions) {
        if (region.row_count == region.geometry.rows())
            full_stripes.fetch_add(region.stripe_count, std::memory_order_relaxed);
        else
            full_rows.fetch_add(region.row_count, std::memory_order_relaxed);
        pad_blocks.fetch_add(region.block_count() - region.used_blocks, std::memory_order_relaxed);
    }
    if (!attempt.takes.empty())
        current_group[static_cast<size_t>(attempt.request.stream)].store(
            attempt.takes.back().group->address().value, std::memory_order_relaxed);
}

void Allocator::Impl::cancel(const Attempt& attempt)
{
    const std::span<const RowRegion> regions(attempt.request.regions);
    size_t begin = 0;
    for (const Attempt::Take& take : attempt.takes) {
        take.group->cancel_take(regions.subspan(begin, take.region_end - begin));
        begin = take.region_end;
    }
}

Status Allocator::allocate(Stream stream, uint32_t unit_blocks, uint64_t unit_count,
                           TransactionId transaction, std::vector<RowRegion>& out)
{
    CW_ASSERT(is_power_of_two(unit_blocks) && unit_blocks <= kNodeBytes / kBlockBytes);
    if (unit_count > kMaxUnits)
        return Err::kNoSpace;
    bool alone = false;
    std::forward_list<Kept> kept;  // one that needs several groups does not drop one for the other
    for (;;) {
        const Ref<SpaceGroupList> groups = impl_->snapshot();
        Attempt attempt;
        attempt.request.stream = stream;
        attempt.request.unit_blocks = unit_blocks;
        attempt.request.units = unit_count;
        Status status;
        if (alone) {
            WriteLock lock(impl_->attempt_lock);
            status = impl_->serve(*groups, attempt, transaction);
        } else {
            ReadLock lock(impl_->attempt_lock);
            status = impl_->serve(*groups, attempt, transaction);
        }
        if (status.ok()) {
            out.insert(out.end(), attempt.request.regions.begin(), attempt.request.regions.end());
            return {};
        }
        if (attempt.unloaded != nullptr) {
            // A group that cannot be read offers nothing from now on, and the others are asked.
            kept.emplace_front(attempt.unloaded);
            impl_->load(*attempt.unloaded, BitmapLoad::kForRoom).ignore();
        } else if (alone) {
            return Err::kNoSpace;
        } else {
            alone = true;
        }
    }
}

uint64_t Allocator::allocate_in_partial_rows(uint64_t block_count, TransactionId transaction,
                                             std::vector<BlockRun>& out)
{
    const Ref<SpaceGroupList> list = impl_->snapshot();
    const std::vector<Ref<SpaceGroup>>& groups = list->groups;
    const size_t start = list->lower_bound({impl_->partial_group.load(std::memory_order_relaxed)});
    uint64_t taken = 0;
    for (size_t step = 0; step < 2 * groups.size() && taken < block_count; ++step) {
        SpaceGroup& group = *groups[(start + step) % groups.size()];
        if (group.avoided() != (step >= groups.size()))
            continue;
        std::vector<BlockRange> ranges;
        SpaceGroup::TakeResult result = SpaceGroup::TakeResult::kNotLoaded;
        std::forward_list<Kept> kept;
        while (group.partial_row_blocks() > 0 && result == SpaceGroup::TakeResult::kNotLoaded) {
            kept.emplace_front(&group);
            impl_->load(group, BitmapLoad::kForRoom).ignore();  // one that cannot be read offers nothing then
            result = group.take_of_partial_rows(block_count - taken, transaction, ranges, taken);
        }
        for (const BlockRange& range : ranges)
            append_runs(group, range, out);
        if (!ranges.empty())
            impl_->partial_group.store(group.address().value, std::memory_order_relaxed);
    }
    impl_->joined_blocks.fetch_add(taken, std::memory_order_relaxed);
    return taken;
}

Status Allocator::free_blocks(VolumeAddress address, uint64_t block_count, TransactionId transaction)
{
    const Ref<SpaceGroup> group = impl_->find(address);
    if (!group)
        return Err::kCorrupt;
    const uint64_t first = group->block_of(address);
    if (first == ~uint64_t{0} || block_count > group->geometry().data_blocks() - first)
        return Err::kCorrupt;
    if (block_count == 0)
        return {};
    return group->free_blocks({first, block_count}, transaction);
}

void Allocator::note_rewritten(VolumeAddress address, TransactionId transaction)
{
    const Ref<SpaceGroup> group = impl_->find(address);
    if (!group)
        return;
    if (const uint64_t block = group->block_of(address); block != ~uint64_t{0})
        group->note_rewritten(block, transaction);
}

Status Allocator::collect(TransactionId transaction, std::vector<SpaceWindow>& windows,
                          std::vector<GroupUsage>& usages)
{
    const Ref<SpaceGroupList> list = impl_->snapshot();
    std::vector<SpaceGroup*> changed;
    for (const Ref<SpaceGroup>& group : list->groups) {
        if (!group->has_deltas(transaction))
            continue;
        CW_TRY(impl_->load(*group, BitmapLoad::kInAnyCase));
        changed.push_back(group.get());
    }
    // A group with deltas is never evicted, so all of them are still there.
    for (SpaceGroup* group : changed)
        group->collect(transaction, windows, usages);
    return {};
}

void Allocator::release(TransactionId transaction, Generation generation)
{
    const Ref<SpaceGroupList> list = impl_->snapshot();
    for (const Ref<SpaceGroup>& group : list->groups)
        group->release(transaction, generation);
}

void Allocator::release_only(TransactionId transaction)
{
    const Ref<SpaceGroupList> list = impl_->snapshot();
    for (const Ref<SpaceGroup>& group : list->groups)
        group->release_only(transaction);
}

SpaceNumbers Allocator::numbers(uint32_t content) const
{
    SpaceNumbers sum = {};
    for (uint32_t bits = 0; bits < impl_->totals.size(); ++bits) {
        if ((bits & content) == 0)
            continue;
        const ContentTotals& totals = impl_->totals[bits];
        sum.total_blocks += totals.total_blocks.load(std::memory_order_relaxed);
        sum.used_blocks += totals.used_blocks.load(std::memory_order_relaxed);
        sum.free_row_blocks += totals.open.row_blocks.load(std::memory_order_relaxed);
        sum.free_stripe_blocks += totals.open.stripe_blocks.load(std::memory_order_relaxed);
        sum.partial_row_blocks += totals.open.partial_row_blocks.load(std::memory_order_relaxed);
        sum.degraded_row_blocks += totals.degraded.row_blocks.load(std::memory_order_relaxed);
        sum.degraded_stripe_blocks += totals.degraded.stripe_blocks.load(std::memory_order_relaxed);
        sum.degraded_partial_row_blocks += totals.degraded.partial_row_blocks.load(std::memory_order_relaxed);
        sum.pinned_blocks += totals.pinned_blocks.load(std::memory_order_relaxed);
        sum.returning_blocks += totals.returning_blocks.load(std::memory_order_relaxed);
        sum.avoided_row_blocks += totals.avoided_row_blocks.load(std::memory_order_relaxed);
        sum.whole_blocks += totals.whole_blocks.load(std::memory_order_relaxed);
    }
    return sum;
}

AllocationStatistics Allocator::statistics() const
{
    return {
        .full_stripes = impl_->full_stripes.load(std::memory_order_relaxed),
        .full_rows = impl_->full_rows.load(std::memory_order_relaxed),
        .pad_blocks = impl_->pad_blocks.load(std::memory_order_relaxed),
        .joined_blocks = impl_->joined_blocks.load(std::memory_order_relaxed),
    };
}

std::vector<VolumeAddress> Allocator::empty_groups(uint32_t content) const
{
    const Ref<SpaceGroupList> list = impl_->snapshot();
    std::vector<VolumeAddress> out;
    for (const Ref<SpaceGroup>& group : list->groups) {
        if ((group->content() & content) != 0 && group->empty())
            out.push_back(group->address());
    }
    return out;
}

Allocator::Kept::Kept(Allocator& allocator, VolumeAddress group_address)
    : Kept(allocator.impl_->find(group_address).get())
{
}

Allocator::Kept::Kept(SpaceGroup* group) : group_(group)
{
    if (group_)
        group_->keep();
}

Allocator::Kept::~Kept()
{
    if (group_)
        group_->let_evict();
}

Result<bool> Allocator::is_used(VolumeAddress address, Ask how)
{
    const Ref<SpaceGroup> group = impl_->find(address);
    if (!group || group->block_of(address) == ~uint64_t{0})
        return Err::kInvalid;
    for (;;) {
        CW_TRY(
            impl_->load(*group, how == Ask::kInAnyCase ? BitmapLoad::kInAnyCase : BitmapLoad::kWithinLimit));
        Result<bool> used = group->is_used(group->block_of(address));
        if (used.ok() || used.err() != Err::kBusy)
            return used;
    }
}

std::vector<GroupNumbers> Allocator::group_numbers(uint32_t content) const
{
    const Ref<SpaceGroupList> list = impl_->snapshot();
    std::vector<GroupNumbers> out;
    for (const Ref<SpaceGroup>& group : list->groups) {
        if ((group->content() & content) != 0)
            out.push_back(group->numbers());
    }
    return out;
}

std::optional<GroupNumbers> Allocator::numbers_of(VolumeAddress group_address) const
{
    const Ref<SpaceGroup> group = impl_->find(group_address);
    return group && group->address() == group_address ? group->numbers() : std::optional<GroupNumbers>();
}

void Allocator::sparse_units(uint32_t content, uint32_t unit_blocks, uint32_t percent, uint64_t unit_count,
                             std::vector<VolumeAddress>& out)
{
    // By how many there are in the same rows.
    std::vector<std::vector<VolumeAddress>> found;
    const Ref<SpaceGroupList> list = impl_->snapshot();
    for (const Ref<SpaceGroup>& group : list->groups) {
        if ((group->content() & content) == 0 || group->geometry().parity == 0)
            continue;
        const uint32_t most = group->geometry().data_columns * percent / 100;
        // One that cannot be read has nothing to give.
        while (impl_->load(*group).ok() && !group->sparse_units(unit_blocks, most, unit_count, found)) { }
    }
    for (const std::vector<VolumeAddress>& units : found)
        for (size_t i = 0; i < units.size() && unit_count > 0; ++i, --unit_count)
            out.push_back(units[i]);
}

Status Allocator::live_blocks(VolumeAddress from, uint64_t block_count, std::vector<BlockRun>& out)
{
    const Ref<SpaceGroup> group = impl_->find(from);
    if (!group || group->block_of(from) == ~uint64_t{0})
        return Err::kInvalid;
    std::vector<BlockRange> ranges;
    do {
        CW_TRY(impl_->load(*group));
    } while (!group->live_blocks({group->block_of(from), UINT64_MAX}, block_count, ranges));
    append_runs(*group, ranges, out);
    return {};
}

Status Allocator::hold_stripes(VolumeAddress group_address, Hold which, uint64_t shortest, uint64_t most,
                               HoldWalk& walk, std::vector<StripeRun>& out)
{
    const Ref<SpaceGroup> group = impl_->find(group_address);
    if (!group)
        return Err::kInvalid;
    if (which == Hold::kFreed && !group->has_freed())
        walk.stripe = SummaryBitmap::kNone;
    while (walk.stripe != SummaryBitmap::kNone) {
        CW_TRY(impl_->load(*group));
        if (group->hold_stripes(which, shortest, most, walk, out))
            return {};
    }
    return {};
}

void Allocator::let_go(VolumeAddress group_address, const StripeRun& stripes, LetGo as)
{
    const Ref<SpaceGroup> group = impl_->find(group_address);
    CW_ASSERT(group);
    group->let_go(stripes, as);
}

namespace {

// What `find` appends of the group's blocks, in runs. kBusy: the group is not in memory.
template <typename Find>
Status find_in(const Ref<SpaceGroup>& group, const BlockRun& run, Find&& find, std::vector<BlockRun>& out)
{
    if (!group || group->block_of(run.address) == ~uint64_t{0})
        return Err::kInvalid;
    std::vector<BlockRange> ranges;
    if (!find(BlockRange{group->block_of(run.address), run.block_count}, ranges))
        return Err::kBusy;
    append_runs(*group, ranges, out);
    return {};
}

}  // namespace

Status Allocator::live_in(const BlockRun& run, std::vector<BlockRun>& out)
{
    const Ref<SpaceGroup> group = impl_->find(run.address);
    const auto find = [&](const BlockRange& within, std::vector<BlockRange>& ranges) {
        return group->live_blocks(within, within.count, ranges);
    };
    return find_in(group, run, find, out);
}

Status Allocator::pinned_in(const BlockRun& run, std::vector<BlockRun>& out)
{
    const Ref<SpaceGroup> group = impl_->find(run.address);
    const auto find = [&](const BlockRange& within, std::vector<BlockRange>& ranges) {
        group->pinned_blocks(within, ranges);
        return true;
    };
    return find_in(group, run, find, out);
}

void Allocator::set_memory_limit(uint64_t bytes)
{
    impl_->memory_limit.store(bytes, std::memory_order_relaxed);
}

uint64_t Allocator::evict_idle(uint64_t budget_bytes)
{
    return impl_->evict_idle(budget_bytes);
}

uint64_t Allocator::Impl::evict_idle(uint64_t budget_bytes)
{
    const Ref<SpaceGroupList> groups = snapshot();
    struct Loaded {
        uint64_t last_used;
        SpaceGroup* group;
        uint64_t bytes;
    };
    std::vector<Loaded> loaded;
    uint64_t total = 0;
    for (const Ref<SpaceGroup>& group : groups->groups) {
        const uint64_t bytes = group->memory_bytes();
        if (bytes > 0)
            loaded.push_back({group->last_used(), group.get(), bytes});
        total += bytes;
    }
    std::sort(loaded.begin(), loaded.end(),
              [](const Loaded& a, const Loaded& b) { return a.last_used < b.last_used; });
    for (const Loaded& oldest : loaded) {
        if (total <= budget_bytes)
            break;
        total -= oldest.bytes - std::min(oldest.bytes, oldest.group->evict());
    }
    return total;
}

}  // namespace cowraid
