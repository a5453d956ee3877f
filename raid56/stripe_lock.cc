// SPDX-License-Identifier: MIT
#include "raid56/stripe_lock.h"

#include <algorithm>

#include "base/assert.h"

namespace cowraid {

// On the stack of the thread that waits.
struct StripeLocks::Waiter {
    StripeKey key;
    bool granted = false;
    CondVar wake;
};

StripeLocks::StripeLocks() = default;

StripeLocks::~StripeLocks()
{
    CW_ASSERT(held_count() == 0);
}

StripeLocks::Bucket& StripeLocks::bucket_of(const StripeKey& key)
{
    return buckets_[stripe_hash(key) >> 56];
}

bool StripeLocks::take_if_free(Bucket& bucket, const StripeKey& key)
{
    if (std::find(bucket.held.begin(), bucket.held.end(), key) != bucket.held.end())
        return false;
    bucket.held.push_back(key);
    return true;
}

bool StripeLocks::try_lock(const StripeKey& key)
{
    Bucket& bucket = bucket_of(key);
    MutexLock guard(bucket.mutex);
    return take_if_free(bucket, key);
}

void StripeLocks::lock(const StripeKey& key)
{
    Bucket& bucket = bucket_of(key);
    MutexLock guard(bucket.mutex);
    if (take_if_free(bucket, key))
        return;
    Waiter waiter{.key = key};
    bucket.waiting.push_back(&waiter);
    while (!waiter.granted)
        waiter.wake.wait(bucket.mutex);
}

void StripeLocks::unlock(const StripeKey& key)
{
    Bucket& bucket = bucket_of(key);
    MutexLock guard(bucket.mutex);
    const auto place = std::find(bucket.held.begin(), bucket.held.end(), key);
    CW_ASSERT(place != bucket.held.end());
    const auto next = std::find_if(bucket.waiting.begin(), bucket.waiting.end(),
                                   [&](const Waiter* waiter) { return waiter->key == key; });
    if (next == bucket.waiting.end()) {
        *place = bucket.held.back();
        bucket.held.pop_back();
        return;
    }
    // Handed over while still held: nobody can slip in between.
    Waiter* waiter = *next;
    bucket.waiting.erase(next);
    waiter->granted = true;
    waiter->wake.notify_one();
}

size_t StripeLocks::held_count()
{
    size_t count = 0;
    for (Bucket& bucket : buckets_) {
        MutexLock guard(bucket.mutex);
        count += bucket.held.size();
    }
    return count;
}

std::vector<StripeKey> stripe_keys(VolumeAddress group, uint64_t first_stripe, uint64_t stripe_count)
{
    std::vector<StripeKey> keys;
    for (uint64_t stripe = first_stripe; stripe < first_stripe + stripe_count; ++stripe)
        keys.push_back({group, stripe});
    return keys;
}

StripeLockSet::StripeLockSet(StripeLocks& locks, std::span<const StripeKey> keys) : locks_(locks), keys_(keys)
{
    for (size_t i = 0; i < keys_.size(); ++i) {
        CW_ASSERT(i == 0 || keys_[i - 1] < keys_[i]);
        locks_.lock(keys_[i]);
    }
}

StripeLockSet::~StripeLockSet()
{
    for (size_t i = keys_.size(); i-- > 0;)
        locks_.unlock(keys_[i]);
}

}  // namespace cowraid
