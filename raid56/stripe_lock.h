// SPDX-License-Identifier: MIT
// One lock per stripe, for as many stripes as are locked at the moment: whoever writes a stripe holds it.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/units.h"

namespace cowraid {

struct StripeKey {
    VolumeAddress group;
    uint64_t stripe = 0;

    friend constexpr auto operator<=>(const StripeKey&, const StripeKey&) = default;
};

// Spreads neighbouring stripes (Fibonacci hashing); the upper bits are the good ones.
constexpr uint64_t stripe_hash(const StripeKey& key)
{
    return (key.stripe ^ key.group.value >> 12) * 0x9e3779b97f4a7c15u;
}

// A hash table of locked stripes. A bucket's mutex is held for a few instructions only, never while a
// stripe is waited for or worked on. Waiters of a stripe get it in the order they came. Thread-safe.
class StripeLocks {
public:
    StripeLocks();
    ~StripeLocks();
    StripeLocks(const StripeLocks&) = delete;
    StripeLocks& operator=(const StripeLocks&) = delete;

    // Sleeps until the stripe is the caller's. Not recursive. Who locks several does so in rising order.
    void lock(const StripeKey& key);
    // False: somebody has it.
    [[nodiscard]] bool try_lock(const StripeKey& key);
    void unlock(const StripeKey& key);
    // How many stripes are locked now; for tests.
    [[nodiscard]] size_t held_count();

private:
    struct Waiter;
    struct Bucket {
        Mutex mutex{LockRank::kStripe};
        std::vector<StripeKey> held CW_GUARDED_BY(mutex);
        std::vector<Waiter*> waiting CW_GUARDED_BY(mutex);  // of any stripe of the bucket, oldest first
    };
    static constexpr size_t kBuckets = 256;

    Bucket& bucket_of(const StripeKey& key);
    static bool take_if_free(Bucket& bucket, const StripeKey& key) CW_REQUIRES(bucket.mutex);

    std::array<Bucket, kBuckets> buckets_;
};

// Keys of consecutive stripes of one group.
std::vector<StripeKey> stripe_keys(VolumeAddress group, uint64_t first_stripe, uint64_t stripe_count);

// Locks the given stripes (rising, distinct) and unlocks them at the end of the scope.
class StripeLockSet {
public:
    StripeLockSet(StripeLocks& locks, std::span<const StripeKey> keys);
    ~StripeLockSet();
    StripeLockSet(const StripeLockSet&) = delete;
    StripeLockSet& operator=(const StripeLockSet&) = delete;

private:
    StripeLocks& locks_;
    std::span<const StripeKey> keys_;
};

}  // namespace cowraid
