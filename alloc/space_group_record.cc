// SPDX-License-Identifier: MIT
// The commit side of one group: deltas become the recorded state, and pins become free rows.
#include <algorithm>
#include <iterator>
#include <utility>

#include "alloc/space_group.h"
#include "base/assert.h"

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

void SpaceGroup::collect(TransactionId transaction, std::vector<SpaceWindow>& windows,
                         std::vector<GroupUsage>& usages)
{
    std::vector<BlockRange> allocated;
    std::vector<BlockRange> freed;
    Pins alone;  // frees of a lower part, for release_only()
    {
        MutexLock lock(mutex_);
        CW_ASSERT(load_state_ == LoadState::kLoaded);
        const auto first = std::stable_partition(deltas_.begin(), deltas_.end(), [=](const Delta& delta) {
            return delta.transaction > transaction;
        });
        for (auto delta = first; delta != deltas_.end(); ++delta) {
            append_all(allocated, delta->allocated);
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
    std::vector<BlockRange> both;
    if (!alone.ranges.empty())
        std::merge(freed.begin(), freed.end(), alone.ranges.begin(), alone.ranges.end(),
                   std::back_inserter(both));
    GroupUsage usage;
    {
        MutexLock lock(record_mutex_);
        record_->apply(transaction, allocated, both.empty() ? freed : both, windows);
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
