// SPDX-License-Identifier: MIT
#include "raid56/stripe_cache.h"

#include <algorithm>

#include "base/assert.h"

namespace cowraid {

CachedRow::CachedRow(uint32_t data_columns, uint32_t parity)
    : checksums(data_columns + parity), memory(size_t{data_columns + 2 * parity} * kBlockBytes)
{
}

StripeCache::StripeCache(const Limits& limits)
{
    set_limits(limits);
}

StripeCache::~StripeCache()
{
    for (Shard& shard : shards_) {
        MutexLock lock(shard.mutex);
        for (const CachedStripe& stripe : shard.order)
            CW_ASSERT(stripe.pins == 0);
    }
}

void StripeCache::set_limits(const Limits& limits)
{
    for (uint32_t i = 0; i < kShards; ++i) {
        MutexLock lock(shards_[i].mutex);
        shards_[i].stripes_max = limits.stripes / kShards + (i < limits.stripes % kShards ? 1 : 0);
        shards_[i].bytes_max = limits.bytes / kShards;
        evict(shards_[i]);
    }
}

CachedStripe& StripeCache::pin(const StripeKey& key, uint32_t mapping_version, uint32_t row_count)
{
    Shard& shard = shard_of(key);
    MutexLock lock(shard.mutex);
    const auto known = shard.places.find(key);
    if (known != shard.places.end())
        shard.order.splice(shard.order.begin(), shard.order, known->second);
    else
        shard.places.emplace(key, shard.order.emplace(shard.order.begin()));
    CachedStripe& stripe = shard.order.front();
    if (stripe.rows.size() != row_count || stripe.mapping_version != mapping_version) {
        shard.bytes -= stripe.bytes;
        stripe.key = key;
        stripe.mapping_version = mapping_version;
        stripe.rows.clear();
        stripe.rows.resize(row_count);
        stripe.bytes = 0;
    }
    ++stripe.pins;
    return stripe;
}

void StripeCache::unpin(CachedStripe& stripe)
{
    uint64_t bytes = 0;
    for (const std::unique_ptr<CachedRow>& row : stripe.rows) {
        bytes += row ? row->bytes() : 0;
        stripe.live_age = std::max(stripe.live_age, row ? row->live_age : 0);
    }
    Shard& shard = shard_of(stripe.key);
    MutexLock lock(shard.mutex);
    shard.bytes += bytes - stripe.bytes;
    stripe.bytes = bytes;
    CW_ASSERT(stripe.pins > 0);
    --stripe.pins;
    evict(shard);
}

void StripeCache::forget(const StripeKey& key, uint32_t first_row, uint32_t row_count)
{
    Shard& shard = shard_of(key);
    MutexLock lock(shard.mutex);
    const auto known = shard.places.find(key);
    if (known == shard.places.end())
        return;
    CachedStripe& stripe = *known->second;
    for (uint32_t row = first_row; row < first_row + row_count && row < stripe.rows.size(); ++row) {
        if (!stripe.rows[row])
            continue;
        shard.bytes -= stripe.rows[row]->bytes();
        stripe.bytes -= stripe.rows[row]->bytes();
        stripe.rows[row].reset();
    }
}

void StripeCache::evict(Shard& shard)
{
    auto too_much = [&]() CW_REQUIRES(shard.mutex) {
        return shard.places.size() > shard.stripes_max || shard.bytes > shard.bytes_max;
    };
    // While live stripes fill the cache, looking at them all each time would find nothing.
    if (crowded())
        return;
    const uint64_t live = age();
    bool kept_live = false;
    for (auto next = shard.order.end(); next != shard.order.begin() && too_much();) {
        --next;
        if (next->pins > 0)
            continue;
        if (next->live_age == live) {
            kept_live = true;
            continue;
        }
        shard.bytes -= next->bytes;
        shard.places.erase(next->key);
        next = shard.order.erase(next);
    }
    if (kept_live && too_much())
        crowded_.store(true, std::memory_order_relaxed);
}

void StripeCache::end_age()
{
    age_.fetch_add(1, std::memory_order_acq_rel);
    crowded_.store(false, std::memory_order_relaxed);
}

StripeCache::Counts StripeCache::counts()
{
    Counts sum = {};
    for (Shard& shard : shards_) {
        MutexLock lock(shard.mutex);
        sum.stripes += shard.places.size();
        sum.bytes += shard.bytes;
    }
    return sum;
}

}  // namespace cowraid
