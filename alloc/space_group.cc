// SPDX-License-Identifier: MIT
#include "alloc/space_group.h"

#include <algorithm>

#include "base/assert.h"

namespace cowraid {

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
    // A summary that cannot be true: loading would say the same.
    if (usage.used_blocks > geometry_.data_blocks() || free_rows_ > geometry_.row_count() ||
        free_stripes_ > geometry_.stripe_count()) {
        load_state_ = LoadState::kBroken;
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
    if (retired_ || load_state_ == LoadState::kBroken ||
        (state_ != State::kOpen && state_ != State::kDegraded))
        return {};
    GroupOffer<uint64_t> offer = {.row_blocks = free_rows_ * geometry_.data_columns,
                                  .stripe_blocks = free_stripes_ * geometry_.stripe_data_blocks()};
    if (geometry_.parity == 0 || (content_ & kGroupData) == 0)
        return offer;
    const uint64_t taken = live_blocks_ + pinned_blocks_ + offer.row_blocks;
    if (space_ != nullptr)
        offer.hole_blocks = space_->hole_blocks();
    else if (taken < geometry_.data_blocks())
        offer.hole_blocks = geometry_.data_blocks() - taken;
    return offer;
}

void SpaceGroup::publish()
{
    if (space_ != nullptr) {
        free_rows_ = space_->free_rows();
        free_stripes_ = space_->free_stripes();
    }
    const GroupOffer<uint64_t> now = offer();
    const GroupOffer<uint64_t> open = state_ == State::kOpen ? now : GroupOffer<uint64_t>();
    const GroupOffer<uint64_t> degraded = state_ == State::kDegraded ? now : GroupOffer<uint64_t>();
    holes_hint_.store(open.hole_blocks, std::memory_order_relaxed);
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
        update(total.hole_blocks, published.hole_blocks, value.hole_blocks);
    };
    const bool returning = state_ == State::kOpen || state_ == State::kDegraded;
    update(totals_.used_blocks, published_used_, live_blocks_);
    update(totals_.pinned_blocks, published_pinned_, pinned_blocks_);
    update(totals_.returning_blocks, published_returning_, returning ? pinned_blocks_ : 0);
    update_offer(totals_.open, published_open_, open);
    update_offer(totals_.degraded, published_degraded_, degraded);
}

void SpaceGroup::set_state(State state)
{
    MutexLock lock(mutex_);
    state_ = state;
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
    return takes_ == 0 && deltas_.empty() && pins_.empty() && !unreleased_;
}

Status SpaceGroup::retire()
{
    MutexLock lock(mutex_);
    while (load_state_ == LoadState::kChanging)
        loaded_changed_.wait(mutex_);
    if (retired_)
        return Err::kNotFound;
    if (live_blocks_ > 0 || pinned_blocks_ > 0 || takes_ > 0)
        return Err::kBusy;
    retired_ = true;
    totals_.total_blocks -= geometry_.data_blocks();
    publish();
    return {};
}

bool SpaceGroup::empty()
{
    MutexLock lock(mutex_);
    return state_ != State::kPlanned && live_blocks_ == 0 && pinned_blocks_ == 0 && takes_ == 0;
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
        .hole_blocks = offer().hole_blocks,
        .planned = state_ == State::kPlanned,
        .degraded = state_ == State::kDegraded,
        .closed = state_ == State::kClosed,
        .broken = load_state_ == LoadState::kBroken,
    };
}

bool SpaceGroup::live_blocks(uint64_t from, uint64_t wanted, std::vector<BlockRange>& out)
{
    MutexLock lock(mutex_);
    if (load_state_ != LoadState::kLoaded)
        return false;
    space_->live_blocks(from, wanted, out);
    return true;
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

Result<bool> SpaceGroup::is_live(uint64_t block)
{
    MutexLock lock(mutex_);
    if (load_state_ != LoadState::kLoaded)
        return Err::kBusy;
    return space_->is_live(block);
}

SpaceGroup::Delta& SpaceGroup::delta_of(TransactionId transaction)
{
    dirty_.store(true, std::memory_order_relaxed);
    for (Delta& delta : deltas_) {
        if (delta.transaction == transaction)
            return delta;
    }
    return deltas_.emplace_back(Delta{.transaction = transaction, .allocated = {}, .freed = {}});
}

SpaceGroup::TakeResult SpaceGroup::take(Pass pass, SpaceRequest& request)
{
    MutexLock lock(mutex_);
    if (state_ != State::kOpen || retired_ || load_state_ == LoadState::kBroken)
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

SpaceGroup::TakeResult SpaceGroup::take_holes(uint64_t wanted, TransactionId transaction,
                                              std::vector<BlockRange>& out, uint64_t& taken)
{
    MutexLock lock(mutex_);
    if (state_ != State::kOpen || retired_ || load_state_ == LoadState::kBroken)
        return TakeResult::kNothing;
    if (load_state_ != LoadState::kLoaded)
        return TakeResult::kNotLoaded;
    const uint64_t got = space_->take_holes(wanted, out);
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
    for (const RowRegion& region : regions) {
        space_->give_back(region);
        live_blocks_ -= region.used_blocks;
    }
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

bool SpaceGroup::has_deltas(TransactionId transaction)
{
    if (!dirty_.load(std::memory_order_relaxed))
        return false;
    MutexLock lock(mutex_);
    return std::any_of(deltas_.begin(), deltas_.end(),
                       [=](const Delta& delta) { return delta.transaction <= transaction; });
}

}  // namespace cowraid
