// SPDX-License-Identifier: MIT
#include "alloc/space_group.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "base/assert.h"
#include "base/log.h"

namespace cowraid {

namespace {

constexpr size_t kRangesPerLock = 2048;  // released in one go, so that writers do not wait for long

void append_all(std::vector<BlockRange>& to, std::vector<BlockRange>& from)
{
    if (to.empty())
        to.swap(from);
    else
        to.insert(to.end(), from.begin(), from.end());
}

// Sorts, and joins what touches.
void normalise(std::vector<BlockRange>& ranges)
{
    std::sort(ranges.begin(), ranges.end());
    size_t kept = 0;
    for (const BlockRange& range : ranges) {
        CW_ASSERT(kept == 0 || ranges[kept - 1].end() <= range.first);
        if (kept > 0 && ranges[kept - 1].end() == range.first)
            ranges[kept - 1].count += range.count;
        else
            ranges[kept++] = range;
    }
    ranges.resize(kept);
}

}  // namespace

SpaceGroup::SpaceGroup(const GroupRecord& record, const GroupUsage& usage, State state, ContentTotals& totals)
    : address_(record.address),
      content_(record.content),
      geometry_(geometry_of(record)),
      totals_(totals),
      state_(state),
      recorded_(usage),
      live_blocks_(usage.used_blocks)
{
    CW_ASSERT(geometry_.chunk_bytes % kBlockBytes == 0 && geometry_.chunk_bytes <= kMaxChunkBytes);
    CW_ASSERT(geometry_.data_columns > 0 && geometry_.stripe_count() > 0);
    if (usage.used_blocks == 0)
        recorded_ = {address_, 0, geometry_.row_count(), geometry_.stripe_count()};
    recorded_.group_address = address_;
    free_rows_ = recorded_.free_rows;
    free_stripes_ = recorded_.free_stripes;
    // A summary that cannot be true: loading will say so.
    if (usage.used_blocks > geometry_.data_blocks() || free_rows_ > geometry_.row_count() ||
        free_stripes_ > geometry_.stripe_count()) {
        load_state_ = LoadState::kUnreadable;
        live_blocks_ = geometry_.data_blocks();
    }
    MutexLock lock(mutex_);
    totals_.total_blocks += geometry_.data_blocks();
    publish();
}

uint64_t SpaceGroup::block_of(VolumeAddress address) const
{
    if (address < address_ || address - address_ >= geometry_.data_blocks() * kBlockBytes ||
        (address - address_) % kBlockBytes != 0)
        return ~uint64_t{0};
    return (address - address_) / kBlockBytes;
}

GroupOffer<uint64_t> SpaceGroup::offer() const
{
    if (retired_ || broken() || (state_ != State::kOpen && state_ != State::kDegraded))
        return {};
    GroupOffer<uint64_t> offer = {.row_blocks = free_rows_ * geometry_.data_columns,
                                  .stripe_blocks = free_stripes_ * geometry_.stripe_data_blocks()};
    if (geometry_.parity == 0 || (content_ & kGroupData) == 0)
        return offer;
    const uint64_t taken = live_blocks_ + pinned_blocks_ + offer.row_blocks;
    if (space_ != nullptr)
        offer.partial_row_blocks = space_->partial_row_blocks();
    else if (taken < geometry_.data_blocks())
        offer.partial_row_blocks = geometry_.data_blocks() - taken;
    return offer;
}

void SpaceGroup::publish()
{
    if (space_ != nullptr) {
        free_rows_ = space_->free_rows();
        free_stripes_ = space_->free_stripes();
    }
    has_freed_.store(space_ != nullptr && space_->has_freed(), std::memory_order_relaxed);
    const GroupOffer<uint64_t> now = offer();
    const GroupOffer<uint64_t> open = state_ == State::kOpen ? now : GroupOffer<uint64_t>();
    const GroupOffer<uint64_t> degraded = state_ == State::kDegraded ? now : GroupOffer<uint64_t>();
    partial_rows_hint_.store(open.partial_row_blocks, std::memory_order_relaxed);
    free_rows_hint_.store(open.row_blocks / geometry_.data_columns, std::memory_order_relaxed);
    free_stripes_hint_.store(open.stripe_blocks / geometry_.stripe_data_blocks(), std::memory_order_relaxed);
    const auto update = [](std::atomic<uint64_t>& total, uint64_t& published, uint64_t value) {
        // Modulo 2^64, so that the difference may be negative.
        if (value != published)
            total.fetch_add(value - published, std::memory_order_relaxed);
        published = value;
    };
    const auto update_offer = [&](GroupOffer<std::atomic<uint64_t>>& total, GroupOffer<uint64_t>& published,
                                  const GroupOffer<uint64_t>& value) {
        update(total.row_blocks, published.row_blocks, value.row_blocks);
        update(total.stripe_blocks, published.stripe_blocks, value.stripe_blocks);
        update(total.partial_row_blocks, published.partial_row_blocks, value.partial_row_blocks);
    };
    const bool returning = state_ == State::kOpen || state_ == State::kDegraded;
    update(totals_.used_blocks, published_used_, live_blocks_);
    update(totals_.pinned_blocks, published_pinned_, pinned_blocks_);
    update(totals_.returning_blocks, published_returning_, returning ? pinned_blocks_ : 0);
    const bool whole = !retired_ && (state_ == State::kOpen || state_ == State::kPlanned);
    update(totals_.avoided_row_blocks, published_avoided_, avoided() ? open.row_blocks : 0);
    update(totals_.whole_blocks, published_whole_, whole ? geometry_.data_blocks() : 0);
    update_offer(totals_.open, published_open_, open);
    update_offer(totals_.degraded, published_degraded_, degraded);
}

void SpaceGroup::set_state(State state)
{
    MutexLock lock(mutex_);
    state_ = state;
    publish();
}

void SpaceGroup::set_avoided(bool avoided)
{
    MutexLock lock(mutex_);
    avoided_.store(avoided, std::memory_order_relaxed);
    publish();
}

void SpaceGroup::degrade()
{
    MutexLock lock(mutex_);
    if (state_ == State::kOpen)
        state_ = State::kDegraded;
    publish();
}

bool SpaceGroup::clean() const
{
    return takes_ == 0 && held_stripes_ == 0 && deltas_.empty() && pins_.empty() && !unreleased_;
}

Status SpaceGroup::retire()
{
    MutexLock lock(mutex_);
    while (load_state_ == LoadState::kChanging)
        loaded_changed_.wait(mutex_);
    if (retired_)
        return Err::kNotFound;
    if (live_blocks_ > 0 || pinned_blocks_ > 0 || takes_ > 0 || held_stripes_ > 0)
        return Err::kBusy;
    retired_ = true;
    totals_.total_blocks -= geometry_.data_blocks();
    publish();
    return {};
}

bool SpaceGroup::empty()
{
    MutexLock lock(mutex_);
    return state_ != State::kPlanned && live_blocks_ == 0 && pinned_blocks_ == 0 && takes_ == 0 &&
           held_stripes_ == 0;
}

GroupNumbers SpaceGroup::numbers()
{
    MutexLock lock(mutex_);
    return {
        .address = address_,
        .total_blocks = geometry_.data_blocks(),
        .live_blocks = live_blocks_,
        .pinned_blocks = pinned_blocks_,
        .free_row_blocks = free_rows_ * geometry_.data_columns,
        .free_stripe_blocks = free_stripes_ * geometry_.stripe_data_blocks(),
        .partial_row_blocks = offer().partial_row_blocks,
        .planned = state_ == State::kPlanned,
        .degraded = state_ == State::kDegraded,
        .closed = state_ == State::kClosed,
        .broken = broken(),
    };
}

bool SpaceGroup::live_blocks(const BlockRange& within, uint64_t wanted, std::vector<BlockRange>& out)
{
    MutexLock lock(mutex_);
    if (load_state_ != LoadState::kLoaded)
        return false;
    space_->live_blocks(within, wanted, out);
    return true;
}

bool SpaceGroup::hold_stripes(Allocator::Hold which, uint64_t shortest, uint64_t most,
                              Allocator::HoldWalk& walk, std::vector<StripeRun>& out)
{
    MutexLock lock(mutex_);
    if (load_state_ != LoadState::kLoaded)
        return false;
    if (retired_ || state_ != State::kOpen) {
        walk.stripe = SummaryBitmap::kNone;
        return true;
    }
    held_stripes_ += space_->hold_stripes(which, shortest, most, walk, out);
    publish();
    return true;
}

void SpaceGroup::let_go(const StripeRun& stripes, Allocator::LetGo as)
{
    MutexLock lock(mutex_);
    CW_ASSERT(stripes.count <= held_stripes_);
    held_stripes_ -= stripes.count;
    space_->let_go(stripes, as);
    publish();
}

void SpaceGroup::pinned_blocks(const BlockRange& within, std::vector<BlockRange>& out)
{
    MutexLock lock(mutex_);
    if (load_state_ == LoadState::kLoaded)
        return space_->pinned_blocks(within, out);
    // What is pinned of a group that is not in memory was freed while it was not; in a damaged tree more than
    // once.
    std::vector<BlockRange> freed;
    for (const Delta& delta : deltas_)
        std::copy_if(delta.freed.begin(), delta.freed.end(), std::back_inserter(freed),
                     [&](const BlockRange& range) {
                         return range.first < within.end() && range.end() > within.first;
                     });
    std::sort(freed.begin(), freed.end());
    uint64_t at = within.first;
    for (const BlockRange& range : freed) {
        const uint64_t first = std::max(range.first, at);
        const uint64_t end = std::min(range.end(), within.end());
        if (first >= end)
            continue;
        append_range(out, {first, end - first});
        at = end;
    }
}

bool SpaceGroup::sparse_units(uint32_t unit_blocks, uint32_t most, uint64_t unit_count,
                              std::vector<std::vector<VolumeAddress>>& out)
{
    MutexLock lock(mutex_);
    if (load_state_ != LoadState::kLoaded)
        return false;
    if (state_ == State::kOpen && !retired_)
        space_->sparse_units(unit_blocks, most, unit_count, out);
    return true;
}

// A group's state comes into memory at first use and leaves it when it is idle.

Status SpaceGroup::ensure_loaded(SpaceSource& source, BitmapMemory& memory, BitmapLoad load)
{
    GroupUsage expected;
    LoadState before = LoadState::kUnloaded;
    {
        MutexLock lock(mutex_);
        while (load_state_ == LoadState::kChanging)
            loaded_changed_.wait(mutex_);
        if (load_state_ == LoadState::kLoaded)
            return {};
        if (load_state_ == LoadState::kCorrupt)
            return Err::kCorrupt;
        before = std::exchange(load_state_, LoadState::kChanging);
        expected = recorded_;
    }
    const BitmapRoom room = memory.make_room(loaded_bytes(), load);
    Result<Loaded> loaded =
        room == BitmapRoom::kCounted ? read_windows(source, expected) : Result<Loaded>(Err::kNoMemory);
    if (loaded.ok()) {
        install(std::move(*loaded));
        return {};
    }
    if (room == BitmapRoom::kTooLarge)
        CW_LOG_ERROR(
            "block group %llu: its free space takes %llu MiB of memory; mount with a mem= of 8 times that",
            static_cast<unsigned long long>(address_.value),
            static_cast<unsigned long long>(divide_up(loaded_bytes(), kMiB)));
    else if (room == BitmapRoom::kCounted)
        CW_LOG_ERROR("block group %llu: its free space cannot be read: %s",
                     static_cast<unsigned long long>(address_.value), err_text(loaded.err()));
    MutexLock lock(mutex_);
    load_state_ = room == BitmapRoom::kNotNow     ? before
                  : loaded.err() == Err::kCorrupt ? LoadState::kCorrupt
                                                  : LoadState::kUnreadable;
    publish();
    loaded_changed_.notify_all();
    return loaded.err();
}

// Three bitmaps of blocks and the states of windows; of stripes the tree of free runs, and those with partial
// rows and with runs of each length.
uint64_t SpaceGroup::loaded_bytes() const
{
    const uint64_t bitmaps = 3 + static_cast<uint64_t>(std::bit_width(geometry_.rows()));
    return geometry_.data_blocks() / 2 + geometry_.stripe_count() * bitmaps / 8 +
           geometry_.stripe_count() / 2;
}

Result<SpaceGroup::Loaded> SpaceGroup::read_windows(SpaceSource& source, const GroupUsage& expected) const
{
    std::vector<SpaceWindow> windows;
    CW_TRY(source.load_windows(address_, windows));
    Loaded loaded = {
        .space = std::make_unique<GroupSpace>(address_, geometry_),
        .record = std::make_unique<RecordedSpace>(address_, geometry_),
    };
    for (const SpaceWindow& window : windows) {
        CW_TRY(loaded.record->load(window));
        loaded.space->load(window);
    }
    const GroupUsage usage = loaded.record->usage();
    if (usage.used_blocks != expected.used_blocks || usage.free_rows != expected.free_rows ||
        usage.free_stripes != expected.free_stripes)
        return Err::kCorrupt;
    return loaded;
}

void SpaceGroup::install(Loaded loaded)
{
    {
        MutexLock lock(record_mutex_);
        record_ = std::move(loaded.record);
    }
    MutexLock lock(mutex_);
    space_ = std::move(loaded.space);
    load_state_ = LoadState::kLoaded;
    apply_early_frees();
    publish();
    loaded_changed_.notify_all();
}

// Frees that came while the group was not in memory. One that names a block which is not used (a crafted or
// damaged tree) is dropped: nothing depends on it.
void SpaceGroup::apply_early_frees()
{
    for (Delta& delta : deltas_) {
        size_t kept = 0;
        for (const BlockRange& range : delta.freed) {
            if (space_->end_life(range)) {
                delta.freed[kept++] = range;
                continue;
            }
            CW_LOG_ERROR("block group %llu: blocks freed that are not used",
                         static_cast<unsigned long long>(address_.value));
            live_blocks_ += range.count;
            pinned_blocks_ -= range.count;
        }
        delta.freed.resize(kept);
    }
}

uint64_t SpaceGroup::memory_bytes()
{
    uint64_t bytes = 0;
    {
        MutexLock lock(mutex_);
        if (space_ != nullptr)
            bytes = space_->memory_bytes();
    }
    MutexLock lock(record_mutex_);
    return record_ == nullptr ? bytes : bytes + record_->memory_bytes();
}

uint64_t SpaceGroup::evict()
{
    bool gone = false;
    {
        MutexLock lock(mutex_);
        if (load_state_ == LoadState::kLoaded && clean() && kept_.load() == 0) {
            load_state_ = LoadState::kChanging;
            space_.reset();
            gone = true;
        }
    }
    if (!gone)
        return memory_bytes();
    {
        MutexLock lock(record_mutex_);
        record_.reset();
    }
    MutexLock lock(mutex_);
    load_state_ = LoadState::kUnloaded;
    loaded_changed_.notify_all();
    return 0;
}

// What operations do, on behalf of transactions.

SpaceGroup::Delta& SpaceGroup::delta_of(TransactionId transaction)
{
    dirty_.store(true, std::memory_order_relaxed);
    for (Delta& delta : deltas_) {
        if (delta.transaction == transaction)
            return delta;
    }
    return deltas_.emplace_back(
        Delta{.transaction = transaction, .allocated = {}, .freed = {}, .rewritten = {}});
}

SpaceGroup::TakeResult SpaceGroup::take(Pass pass, SpaceRequest& request)
{
    MutexLock lock(mutex_);
    if (state_ != State::kOpen || retired_ || broken())
        return TakeResult::kNothing;
    if (load_state_ != LoadState::kLoaded)
        return TakeResult::kNotLoaded;
    const uint64_t before = request.units;
    request.first_own = request.regions.size();
    if (pass == Pass::kStripes)
        space_->take_stripes(request);
    else
        space_->take_fragments(request);
    if (request.units == before)
        return TakeResult::kNothing;
    live_blocks_ += (before - request.units) * request.unit_blocks;
    ++takes_;
    publish();
    return TakeResult::kTaken;
}

SpaceGroup::TakeResult SpaceGroup::take_of_partial_rows(uint64_t wanted, TransactionId transaction,
                                                        std::vector<BlockRange>& out, uint64_t& taken)
{
    MutexLock lock(mutex_);
    if (state_ != State::kOpen || retired_ || broken())
        return TakeResult::kNothing;
    if (load_state_ != LoadState::kLoaded)
        return TakeResult::kNotLoaded;
    const uint64_t got = space_->take_of_partial_rows(wanted, out);
    if (got == 0)
        return TakeResult::kNothing;
    taken += got;
    live_blocks_ += got;
    Delta& delta = delta_of(transaction);
    for (const BlockRange& range : out)
        append_range(delta.allocated, range);
    publish();
    return TakeResult::kTaken;
}

void SpaceGroup::commit_take(std::span<const RowRegion> regions, TransactionId transaction)
{
    MutexLock lock(mutex_);
    Delta& delta = delta_of(transaction);
    for (const RowRegion& region : regions)
        append_used_ranges(region, delta.allocated);
    --takes_;
}

void SpaceGroup::cancel_take(std::span<const RowRegion> regions)
{
    MutexLock lock(mutex_);
    for (const RowRegion& region : regions)
        live_blocks_ -= space_->give_back(region);
    --takes_;
    publish();
}

Status SpaceGroup::free_blocks(const BlockRange& range, TransactionId transaction)
{
    MutexLock lock(mutex_);
    if (retired_ || range.count > live_blocks_)
        return Err::kCorrupt;
    // A group that is not in memory is asked later (apply_early_frees): nobody waits for a read here.
    if (load_state_ == LoadState::kLoaded && !space_->end_life(range))
        return Err::kCorrupt;
    append_range(delta_of(transaction).freed, range);
    live_blocks_ -= range.count;
    pinned_blocks_ += range.count;
    publish();
    return {};
}

void SpaceGroup::note_rewritten(uint64_t block, TransactionId transaction)
{
    MutexLock lock(mutex_);
    append_range(delta_of(transaction).rewritten, {block, 1});
}

bool SpaceGroup::has_deltas(TransactionId transaction)
{
    if (!dirty_.load(std::memory_order_relaxed))
        return false;
    MutexLock lock(mutex_);
    return std::any_of(deltas_.begin(), deltas_.end(),
                       [=](const Delta& delta) { return delta.transaction <= transaction; });
}

// The commit side: deltas become the recorded state, and pins become free rows.

void SpaceGroup::collect(TransactionId transaction, std::vector<SpaceWindow>& windows,
                         std::vector<GroupUsage>& usages)
{
    std::vector<BlockRange> allocated;
    std::vector<BlockRange> freed;
    std::vector<BlockRange> rewritten;
    Pins alone;  // frees of a lower part, for release_only()
    {
        MutexLock lock(mutex_);
        CW_ASSERT(load_state_ == LoadState::kLoaded);
        const auto first = std::stable_partition(deltas_.begin(), deltas_.end(), [=](const Delta& delta) {
            return delta.transaction > transaction;
        });
        for (auto delta = first; delta != deltas_.end(); ++delta) {
            append_all(allocated, delta->allocated);
            append_all(rewritten, delta->rewritten);
            const bool lower_part =
                delta->transaction.value == transaction.value && delta->transaction.part < transaction.part;
            if (lower_part)
                alone.transaction = delta->transaction;
            append_all(lower_part ? alone.ranges : freed, delta->freed);
        }
        deltas_.erase(first, deltas_.end());
        collected_ = std::max(collected_, transaction);
        unreleased_ = true;
    }
    normalise(allocated);
    normalise(freed);
    normalise(alone.ranges);
    std::sort(rewritten.begin(), rewritten.end());  // a row may be in it twice
    std::vector<BlockRange> both;
    if (!alone.ranges.empty())
        std::merge(freed.begin(), freed.end(), alone.ranges.begin(), alone.ranges.end(),
                   std::back_inserter(both));
    GroupUsage usage;
    {
        MutexLock lock(record_mutex_);
        record_->apply(transaction, allocated, both.empty() ? freed : both, rewritten, windows);
        usage = record_->usage();
    }
    MutexLock lock(mutex_);
    if (!freed.empty())
        pins_.push_back({.transaction = transaction, .ranges = std::move(freed)});
    if (!alone.ranges.empty())
        pins_.push_back(std::move(alone));
    const bool same = usage.used_blocks == recorded_.used_blocks && usage.free_rows == recorded_.free_rows &&
                      usage.free_stripes == recorded_.free_stripes;
    recorded_ = usage;
    if (!same)
        usages.push_back(usage);
}

void SpaceGroup::release(TransactionId transaction, Generation generation)
{
    if (!dirty_.load(std::memory_order_relaxed))
        return;
    {
        MutexLock lock(record_mutex_);
        if (record_ != nullptr)
            record_->set_durable(transaction, generation);
    }
    while (release_some({}, transaction)) { }
    MutexLock lock(mutex_);
    if (transaction >= collected_)
        unreleased_ = false;
    if (clean())
        dirty_.store(false, std::memory_order_relaxed);
}

void SpaceGroup::release_only(TransactionId transaction)
{
    if (dirty_.load(std::memory_order_relaxed))
        while (release_some(transaction, transaction)) { }
}

bool SpaceGroup::release_some(TransactionId first, TransactionId last)
{
    MutexLock lock(mutex_);
    const auto pins = std::find_if(pins_.begin(), pins_.end(), [=](const Pins& batch) {
        return first <= batch.transaction && batch.transaction <= last;
    });
    if (pins == pins_.end())
        return false;
    const size_t count = std::min(kRangesPerLock, pins->ranges.size() - pins->released);
    const std::span<const BlockRange> ranges(pins->ranges.data() + pins->released, count);
    space_->release(ranges);
    for (const BlockRange& range : ranges)
        pinned_blocks_ -= range.count;
    pins->released += count;
    if (pins->released == pins->ranges.size())
        pins_.erase(pins);
    publish();
    return true;
}

Result<bool> SpaceGroup::is_used(uint64_t block)
{
    {
        MutexLock lock(mutex_);
        if (load_state_ != LoadState::kLoaded)
            return Err::kBusy;
        if (space_->is_live(block))
            return true;
    }
    MutexLock lock(record_mutex_);
    return record_ != nullptr && record_->is_used(block);
}

}  // namespace cowraid
