// SPDX-License-Identifier: MIT
// One allocation: ask the groups in turn for stripes, then for fragments; all or nothing.
#include <algorithm>
#include <utility>

#include "alloc/allocator_impl.h"
#include "base/assert.h"

namespace cowraid {

namespace {

constexpr uint32_t kContentOfStream[kStreamCount] = {kGroupData, kGroupMetadata, kGroupSystem, kGroupData};
// Beyond every volume; keeps the arithmetic far from overflow.
constexpr uint64_t kMaxUnits = uint64_t{1} << 48;

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

}  // namespace

bool Allocator::Impl::take_from_groups(const SpaceGroupList& groups, SpaceGroup::Pass pass, Attempt& attempt)
{
    SpaceRequest& request = attempt.request;
    const auto stream = static_cast<size_t>(request.stream);
    const VolumeAddress current = {current_group[stream].load(std::memory_order_relaxed)};
    const size_t count = groups.groups.size();
    const size_t start = groups.lower_bound(current);
    for (size_t step = 0; step < count && request.units > 0; ++step) {
        SpaceGroup& group = *groups.groups[(start + step) % count];
        if ((group.content() & kContentOfStream[stream]) == 0 ||
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

Status Allocator::Impl::attempt_once(const SpaceGroupList& groups, Attempt& attempt,
                                     TransactionId transaction)
{
    const bool asked_all = take_from_groups(groups, SpaceGroup::Pass::kStripes, attempt) &&
                           take_from_groups(groups, SpaceGroup::Pass::kFragments, attempt);
    if (asked_all && attempt.request.units == 0) {
        finish(attempt, transaction);
        return {};
    }
    cancel(attempt);
    return asked_all ? Err::kNoSpace : Err::kBusy;
}

Status Allocator::Impl::attempt_shared(const SpaceGroupList& groups, Attempt& attempt,
                                       TransactionId transaction)
{
    ReadLock lock(attempt_lock);
    return attempt_once(groups, attempt, transaction);
}

Status Allocator::Impl::attempt_alone(const SpaceGroupList& groups, Attempt& attempt,
                                      TransactionId transaction)
{
    WriteLock lock(attempt_lock);
    return attempt_once(groups, attempt, transaction);
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
    for (;;) {
        const Ref<SpaceGroupList> groups = impl_->snapshot();
        Attempt attempt;
        attempt.request.stream = stream;
        attempt.request.unit_blocks = unit_blocks;
        attempt.request.units = unit_count;
        const Status status = alone ? impl_->attempt_alone(*groups, attempt, transaction)
                                    : impl_->attempt_shared(*groups, attempt, transaction);
        if (status.ok()) {
            out.insert(out.end(), attempt.request.regions.begin(), attempt.request.regions.end());
            return {};
        }
        if (attempt.unloaded != nullptr) {
            // A group that cannot be read offers nothing from now on, and the others are asked.
            impl_->load(*attempt.unloaded).ignore();
        } else if (alone) {
            return Err::kNoSpace;
        } else {
            alone = true;
        }
    }
}

uint64_t Allocator::allocate_holes(uint64_t block_count, TransactionId transaction,
                                   std::vector<BlockRun>& out)
{
    const Ref<SpaceGroupList> list = impl_->snapshot();
    const std::vector<Ref<SpaceGroup>>& groups = list->groups;
    const size_t start = list->lower_bound({impl_->hole_group.load(std::memory_order_relaxed)});
    uint64_t taken = 0;
    for (size_t step = 0; step < groups.size() && taken < block_count; ++step) {
        SpaceGroup& group = *groups[(start + step) % groups.size()];
        std::vector<BlockRange> ranges;
        SpaceGroup::TakeResult result = SpaceGroup::TakeResult::kNotLoaded;
        while (group.holes() > 0 && result == SpaceGroup::TakeResult::kNotLoaded) {
            impl_->load(group).ignore();  // one that cannot be read offers nothing from now on
            result = group.take_holes(block_count - taken, transaction, ranges, taken);
        }
        for (const BlockRange& range : ranges)
            append_runs(group, range, out);
        if (!ranges.empty())
            impl_->hole_group.store(group.address().value, std::memory_order_relaxed);
    }
    impl_->joined_blocks.fetch_add(taken, std::memory_order_relaxed);
    return taken;
}

}  // namespace cowraid
