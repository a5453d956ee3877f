// SPDX-License-Identifier: MIT
// How one group gives rows to a request: whole stripes, the open stripe, fragments.
#include <algorithm>
#include <bit>

#include "alloc/group_space.h"
#include "base/assert.h"

namespace cowraid {

namespace {

// With fewer than one free stripe in so many, a tail rather goes into a partly used stripe.
constexpr uint64_t kScarceStripes = 32;

}  // namespace

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
GroupSpace::StripeRun GroupSpace::find_stripes(uint64_t from, uint64_t wanted) const
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

}  // namespace cowraid
