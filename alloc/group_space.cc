// SPDX-License-Identifier: MIT
#include "alloc/group_space.h"

#include <algorithm>
#include <bit>

#include "base/assert.h"

namespace cowraid {

namespace {

// With fewer than one free stripe in so many, a tail rather goes into a partly used stripe.
constexpr uint64_t kScarceStripes = 32;

}  // namespace

GroupSpace::GroupSpace(VolumeAddress address, const Geometry& geometry)
    : address_(address),
      geometry_(geometry),
      rows_(geometry.rows()),
      stripe_blocks_(geometry.stripe_data_blocks()),
      free_rows_(geometry.row_count()),
      used_(geometry.data_blocks()),
      live_(geometry.data_blocks()),
      free_stripes_(geometry.stripe_count()),
      freed_(geometry.stripe_count()),
      partial_stripes_(geometry.stripe_count())
{
    for (uint32_t run = 1; run < rows_; run *= 2)
        partial_.emplace_back(geometry.stripe_count());
}

void GroupSpace::load(const SpaceWindow& window)
{
    if (window.used_count == 0)
        return;
    const uint64_t first = window.first_stripe * stripe_blocks_;
    if (window.bitmap.empty()) {
        const uint64_t stripes = window.block_count / stripe_blocks_;
        used_.set(first, window.block_count);
        live_.set(first, window.block_count);
        free_stripes_.set_used(window.first_stripe, stripes);
        free_rows_ -= stripes * rows_;
        return;
    }
    used_.load(first, window.block_count, window.bitmap);
    live_.load(first, window.block_count, window.bitmap);
    for (uint64_t stripe = window.first_stripe; stripe * stripe_blocks_ < first + window.block_count;
         ++stripe)
        reindex(stripe, {rows_, rows_, 0}, stripe_state(used_, geometry_, stripe));
}

void GroupSpace::note_partial_rows(uint64_t stripe, uint64_t before, uint64_t after)
{
    partial_row_blocks_ = partial_row_blocks_ - before + after;
    if (before == 0 && after > 0)
        partial_stripes_.insert(stripe);
    else if (before > 0 && after == 0)
        partial_stripes_.erase(stripe);
}

void GroupSpace::reindex(uint64_t stripe, const StripeState& before, const StripeState& after)
{
    note_partial_rows(stripe, before.partial_row_blocks, after.partial_row_blocks);
    free_rows_ = free_rows_ - before.free_rows + after.free_rows;
    if (before.free_rows == rows_ && after.free_rows < rows_)
        free_stripes_.set_used(stripe, 1);
    else if (before.free_rows < rows_ && after.free_rows == rows_)
        free_stripes_.set_free(stripe, 1);
    // The set of `partial_` a stripe is in; beyond them: none.
    const auto kind = [this](const StripeState& state) -> size_t {
        const bool partial = state.free_rows > 0 && state.free_rows < rows_;
        return partial ? static_cast<size_t>(std::bit_width(state.longest_run)) - 1 : partial_.size();
    };
    const size_t from = kind(before);
    const size_t to = kind(after);
    if (from == to)
        return;
    if (from < partial_.size())
        partial_[from].erase(stripe);
    if (to < partial_.size())
        partial_[to].insert(stripe);
}

// How rows are given to a request: whole stripes, the open stripe, fragments.

GroupSpace::StreamPlace& GroupSpace::place(const SpaceRequest& request)
{
    return places_[static_cast<size_t>(request.stream)];
}

uint64_t GroupSpace::rows_needed(const SpaceRequest& request) const
{
    return divide_up(request.units, geometry_.data_columns) * request.unit_blocks;
}

void GroupSpace::take_stripes(SpaceRequest& request)
{
    take_whole(request);
    // Units longer than a chunk never fit into a part of a stripe.
    if (request.units > 0 && request.unit_blocks <= rows_)
        take_tail(request);
}

void GroupSpace::take_whole(SpaceRequest& request)
{
    const bool only_whole = request.unit_blocks > rows_;
    while (request.units > 0) {
        const uint64_t blocks = request.units * request.unit_blocks;
        const uint64_t wanted = only_whole ? divide_up(blocks, stripe_blocks_) : blocks / stripe_blocks_;
        const StripeRun run = find_stripes(place(request).next_stripe, wanted);
        const uint64_t units = std::min(request.units, run.count * stripe_blocks_ / request.unit_blocks);
        if (units == 0)
            return;
        take_region(request, {run.first, divide_up(units * request.unit_blocks, stripe_blocks_)}, {0, rows_},
                    units);
    }
}

// `wanted` free stripes, or the longest run there is; where the stream left off if that is no worse.
StripeRun GroupSpace::find_stripes(uint64_t from, uint64_t wanted) const
{
    const uint64_t count = std::min(wanted, free_stripes_.longest());
    if (count == 0)
        return {};
    if (free_stripes_.run_at(from, count) == count)
        return {from, count};
    return {free_stripes_.find(count), count};
}

// The open stripe's rows are used up before another stripe is begun: that costs a region more, but the pads
// are the same (only the last row has some) and no stripe is left half full.
void GroupSpace::take_tail(SpaceRequest& request)
{
    take_open(request);
    if (request.units == 0)
        return;
    const uint64_t stripe = find_tail_stripe(request);
    if (stripe == kNone)
        return;
    place(request).open_stripe = stripe;
    if (free_stripes_.run_at(stripe, 1) == 1)
        place(request).next_stripe = stripe + 1;
    take_open(request);
}

// The stripe to open for what is left, kNone when no whole stripe is free.
uint64_t GroupSpace::find_tail_stripe(const SpaceRequest& request)
{
    if (free_stripes_.free_count() == 0)
        return kNone;
    if (free_stripes_.free_count() < geometry_.stripe_count() / kScarceStripes) {
        const uint64_t wanted = rows_needed(request);
        const uint64_t stripe = find_partial(wanted, request.unit_blocks);
        const bool foreign = std::any_of(places_.begin(), places_.end(), [=](const StreamPlace& other) {
            return other.open_stripe == stripe;
        });
        if (stripe != kNone && !foreign && stripe_state(used_, geometry_, stripe).longest_run >= wanted)
            return stripe;
    }
    return find_stripes(place(request).next_stripe, 1).first;
}

// Places units into the free rows of the stream's open stripe; closes it when no unit fits any more.
void GroupSpace::take_open(SpaceRequest& request)
{
    const uint64_t stripe = place(request).open_stripe;
    if (stripe == kNone)
        return;
    while (request.units > 0) {
        const auto wanted = static_cast<uint32_t>(std::min<uint64_t>(rows_needed(request), rows_));
        const RowRun run =
            best_free_run(used_rows(used_, geometry_, stripe), rows_, wanted, request.unit_blocks);
        if (run.count == 0) {
            place(request).open_stripe = kNone;
            return;
        }
        const uint32_t rows = std::min(run.count, wanted);
        const uint64_t room = uint64_t{rows / request.unit_blocks} * geometry_.data_columns;
        take_region(request, {stripe, 1}, {run.first, rows}, std::min(request.units, room));
    }
}

// A partly used stripe for `wanted_rows`: the tightest kind that surely has them in one run, else the one
// with the longest runs. kNone when no run has `unit_blocks` rows.
uint64_t GroupSpace::find_partial(uint64_t wanted_rows, uint32_t unit_blocks) const
{
    const size_t least = static_cast<size_t>(std::bit_width(unit_blocks - 1));
    const size_t sure = std::min(partial_.size(), static_cast<size_t>(std::bit_width(wanted_rows - 1)));
    for (size_t kind = std::max(sure, least); kind < partial_.size(); ++kind) {
        if (const uint64_t stripe = partial_[kind].find(0); stripe != kNone)
            return stripe;
    }
    for (size_t kind = sure; kind-- > least;) {
        if (const uint64_t stripe = partial_[kind].find(0); stripe != kNone)
            return stripe;
    }
    return kNone;
}

void GroupSpace::take_fragments(SpaceRequest& request)
{
    while (request.units > 0) {
        const uint64_t stripe = find_partial(rows_needed(request), request.unit_blocks);
        if (stripe == kNone)
            return;
        place(request).open_stripe = stripe;
        take_open(request);
    }
}

void GroupSpace::take_region(SpaceRequest& request, const StripeRun& stripes, const RowRun& rows,
                             uint64_t units)
{
    const RowRegion region = {
        .group_address = address_,
        .geometry = geometry_,
        .first_stripe = stripes.first,
        .stripe_count = stripes.count,
        .first_row = rows.first,
        .row_count = rows.count,
        .used_blocks = units * request.unit_blocks,
    };
    mark(region);
    request.units -= units;
    if (rows.count == rows_)
        place(request).next_stripe = stripes.first + stripes.count;
    if (request.regions.size() > request.first_own) {
        RowRegion& last = request.regions.back();
        const bool joins = last.row_count == rows_ && region.row_count == rows_ &&
                           last.first_stripe + last.stripe_count == region.first_stripe &&
                           last.used_blocks == last.block_count();
        if (joins) {
            last.stripe_count += region.stripe_count;
            last.used_blocks += region.used_blocks;
            return;
        }
    }
    request.regions.push_back(region);
}

void GroupSpace::mark(const RowRegion& region)
{
    std::vector<BlockRange> ranges;
    append_used_ranges(region, ranges);
    const bool whole = region.row_count == rows_;
    const StripeState before = whole ? StripeState{} : stripe_state(used_, geometry_, region.first_stripe);
    for (const BlockRange& range : ranges) {
        CW_DEBUG_ASSERT(used_.none(range.first, range.count));
        used_.set(range.first, range.count);
        live_.set(range.first, range.count);
    }
    if (whole) {
        free_stripes_.set_used(region.first_stripe, region.stripe_count);
        free_rows_ -= region.stripe_count * rows_;
        // Only the last stripe can have pads.
        const uint64_t last = region.first_stripe + region.stripe_count - 1;
        if (region.used_blocks < region.block_count())
            note_partial_rows(last, 0, stripe_state(used_, geometry_, last).partial_row_blocks);
    } else {
        reindex(region.first_stripe, before, stripe_state(used_, geometry_, region.first_stripe));
    }
}

uint64_t GroupSpace::give_back(const RowRegion& region)
{
    std::vector<BlockRange> ranges, live;
    append_used_ranges(region, ranges);
    for (const BlockRange& range : ranges)
        live_blocks(range, range.count, live);
    uint64_t count = 0;
    for (const BlockRange& range : live) {
        live_.clear(range.first, range.count);
        count += range.count;
    }
    release(live);
    return count;
}

bool GroupSpace::end_life(const BlockRange& range)
{
    if (!live_.all(range.first, range.count))
        return false;
    live_.clear(range.first, range.count);
    return true;
}

void GroupSpace::release(std::span<const BlockRange> ranges)
{
    uint64_t stripe = kNone;
    StripeState before;
    StripeRun emptied;  // stripes that became free side by side enter the tree as one run
    const auto enter = [&] {
        set_freed(emptied);
        emptied = {};
    };
    const auto finish = [&] {
        if (stripe == kNone)
            return;
        const StripeState after = stripe_state(used_, geometry_, stripe);
        if (after.free_rows < rows_ || before.free_rows == rows_) {
            reindex(stripe, before, after);
            return;
        }
        reindex(stripe, before, {});
        free_rows_ += rows_;
        if (emptied.count > 0 && emptied.first + emptied.count != stripe)
            enter();
        emptied = {emptied.count > 0 ? emptied.first : stripe, emptied.count + 1};
    };
    for (const BlockRange& range : ranges) {
        for (uint64_t block = range.first; block < range.end();) {
            if (block / stripe_blocks_ != stripe) {
                finish();
                stripe = block / stripe_blocks_;
                before = stripe_state(used_, geometry_, stripe);
            }
            const uint64_t stop = std::min(range.end(), (stripe + 1) * stripe_blocks_);
            used_.clear(block, stop - block);
            block = stop;
        }
    }
    finish();
    if (emptied.count > 0)
        enter();
}

void GroupSpace::set_freed(const StripeRun& stripes)
{
    free_stripes_.set_free(stripes.first, stripes.count);
    for (uint64_t stripe = stripes.first; stripe < stripes.first + stripes.count; ++stripe)
        freed_.insert(stripe);
}

uint64_t GroupSpace::hold_stripes(Allocator::Hold which, uint64_t shortest, uint64_t most,
                                  Allocator::HoldWalk& walk, std::vector<StripeRun>& out)
{
    const bool only_freed = which == Allocator::Hold::kFreed;
    const uint64_t last = std::min(walk.end, geometry_.stripe_count());
    uint64_t held = 0;
    while (held < most && walk.stripe != kNone) {
        if (only_freed)
            walk.stripe = freed_.find(walk.stripe);
        if (walk.stripe >= last) {
            walk.stripe = kNone;
            break;
        }
        const uint64_t first = walk.stripe;
        uint64_t end = first + free_stripes_.run_at(first, last - first);
        for (uint64_t stripe = first; only_freed && stripe < end; ++stripe)
            if (freed_.find(stripe) != stripe)
                end = stripe;
        if (end - first >= shortest)
            walk.run_end = end;
        // What is left of a run after a piece of it counts as that run.
        const uint64_t count = first < walk.run_end ? std::min(end - first, most - held) : 0;
        walk.stripe = count > 0 ? first + count : std::max(end, first + 1);
        for (uint64_t stripe = first; stripe < walk.stripe && (only_freed || count > 0); ++stripe)
            freed_.erase(stripe);
        if (count == 0)
            continue;
        free_stripes_.set_used(first, count);
        out.push_back({first, count});
        held += count;
    }
    free_rows_ -= held * rows_;
    for (StreamPlace& place : places_)
        for (const StripeRun& run : out)
            if (place.open_stripe - run.first < run.count)
                place.open_stripe = kNone;
    return held;
}

void GroupSpace::let_go(const StripeRun& stripes, Allocator::LetGo as)
{
    if (as == Allocator::LetGo::kFreed)
        set_freed(stripes);
    else
        free_stripes_.set_free(stripes.first, stripes.count);
    free_rows_ += stripes.count * rows_;
}

uint64_t GroupSpace::take_of_stripe(uint64_t stripe, uint64_t wanted, std::vector<BlockRange>& out)
{
    uint64_t taken = 0;
    const Bits256 rows = used_rows(used_, geometry_, stripe);
    for (uint32_t column = 0; column < geometry_.data_columns && taken < wanted; ++column) {
        const uint64_t first = stripe * stripe_blocks_ + uint64_t{column} * rows_;
        for (uint32_t row = rows.next_set(0, rows_); row < rows_ && taken < wanted;
             row = rows.next_set(row + 1, rows_)) {
            if (used_.test(first + row))
                continue;
            used_.set(first + row, 1);
            live_.set(first + row, 1);
            append_range(out, {first + row, 1});
            ++taken;
        }
    }
    const uint64_t left = stripe_state(used_, geometry_, stripe).partial_row_blocks;
    note_partial_rows(stripe, left + taken, left);
    return taken;
}

uint64_t GroupSpace::take_of_partial_rows(uint64_t wanted, std::vector<BlockRange>& out)
{
    uint64_t taken = 0;
    while (taken < wanted) {
        uint64_t stripe = partial_stripes_.find(next_partial_);
        if (stripe == kNone)
            stripe = partial_stripes_.find(0);
        if (stripe == kNone)
            break;
        taken += take_of_stripe(stripe, wanted - taken, out);
        // The next call goes on in the same stripe while it has some: its rows are in the stripe cache.
        next_partial_ = stripe;
    }
    return taken;
}

namespace {

// The first `wanted` or fewer blocks of [from, end) of which bits(block, width) has the bit.
template <typename Bits>
void append_blocks(uint64_t from, uint64_t end, uint64_t wanted, Bits&& bits_at, std::vector<BlockRange>& out)
{
    while (from < end && wanted > 0) {
        const auto width = static_cast<uint32_t>(std::min<uint64_t>(64, end - from));
        const uint64_t bits = bits_at(from, width);
        if (bits == 0) {
            from += width;
            continue;
        }
        const auto skip = static_cast<uint64_t>(std::countr_zero(bits));
        const uint64_t count =
            std::min<uint64_t>(wanted, static_cast<uint64_t>(std::countr_one(bits >> skip)));
        append_range(out, {from + skip, count});
        wanted -= count;
        from += skip + count;
    }
}

}  // namespace

void GroupSpace::live_blocks(const BlockRange& within, uint64_t wanted, std::vector<BlockRange>& out) const
{
    append_blocks(
        within.first, within.first + std::min(live_.bit_count() - within.first, within.count), wanted,
        [&](uint64_t from, uint32_t width) { return live_.bits(from, width); }, out);
}

void GroupSpace::pinned_blocks(const BlockRange& within, std::vector<BlockRange>& out) const
{
    append_blocks(
        within.first, within.first + within.count, within.count,
        [&](uint64_t from, uint32_t width) { return used_.bits(from, width) & ~live_.bits(from, width); },
        out);
}

void GroupSpace::sparse_units(uint32_t unit_blocks, uint32_t most, uint64_t unit_count,
                              std::vector<std::vector<VolumeAddress>>& out) const
{
    out.resize(std::max<size_t>(out.size(), geometry_.data_columns));
    std::vector<VolumeAddress> units;
    for (uint64_t stripe = partial_stripes_.find(0); stripe != kNone;
         stripe = partial_stripes_.find(stripe + 1)) {
        const uint64_t first = stripe * stripe_blocks_;
        for (uint32_t row = 0; row + unit_blocks <= rows_; row += unit_blocks) {
            units.clear();
            for (uint32_t column = 0; column < geometry_.data_columns; ++column) {
                const uint64_t block = first + uint64_t{column} * rows_ + row;
                if (live_.test(block))
                    units.push_back(address_ + block * kBlockBytes);
            }
            if (units.empty() || units.size() > most || units.size() == geometry_.data_columns)
                continue;
            std::vector<VolumeAddress>& alike = out[units.size() - 1];
            if (alike.size() < unit_count)
                alike.insert(alike.end(), units.begin(), units.end());
        }
    }
}

uint64_t GroupSpace::memory_bytes() const
{
    uint64_t bytes = 2 * used_.bit_count() / 8 + free_stripes_.memory_bytes() +
                     partial_stripes_.memory_bytes() + freed_.memory_bytes();
    for (const SummaryBitmap& stripes : partial_)
        bytes += stripes.memory_bytes();
    return bytes;
}

}  // namespace cowraid
