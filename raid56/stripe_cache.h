// SPDX-License-Identifier: MIT
// What the array remembers of the stripes it wrote in part: content and checksums of blocks, and of rows
// written in place since all members were last flushed what their log entries must go on saying.
#pragma once

#include <array>
#include <atomic>
#include <bitset>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/buffer.h"
#include "base/mutex.h"
#include "raid56/parity.h"
#include "raid56/stripe_lock.h"

namespace cowraid {

// One bit per logical column of a row, parity behind the data.
using RowBits = std::bitset<kMaxDataColumns + kMaxParity>;

struct CachedRow {
    CachedRow(uint32_t data_columns, uint32_t parity);

    // Content of a column; right where `present` says so.
    [[nodiscard]] std::byte* block(size_t column) { return memory.data() + column * kBlockBytes; }
    // Parity of the blocks that are not in `written`. Meaningful while the row is live.
    [[nodiscard]] std::byte* partial(size_t parity) { return block(checksums.size() + parity); }
    [[nodiscard]] uint64_t bytes() const { return sizeof *this + memory.size() + checksums.size() * 8; }

    std::vector<Checksum> checksums;  // of all columns, what the members hold or must hold
    bool checksums_known = false;
    RowBits present;
    RowBits written;  // in place since all members were last flushed
    uint64_t live_age = 0;  // the row is live while this is the cache's age
    AlignedBuffer memory;
};

// Used by whoever holds the stripe's lock, between pin() and unpin().
struct CachedStripe {
    StripeKey key;
    uint32_t mapping_version = 0;
    std::vector<std::unique_ptr<CachedRow>> rows;  // by row of the stripe; null: nothing known
    uint64_t bytes = 0;  // of all rows
    uint64_t live_age = 0;  // the newest of its rows
    uint32_t pins = 0;
};

// Least recently used stripes go first; those pinned or live stay. Sharded: no lock is common to all stripes.
// Thread-safe.
class StripeCache {
public:
    struct Limits {
        uint32_t stripes = 1024;
        uint64_t bytes = 256 * kMiB;
    };
    struct Counts {
        uint64_t stripes, bytes;
    };

    explicit StripeCache(const Limits& limits);
    ~StripeCache();
    StripeCache(const StripeCache&) = delete;
    StripeCache& operator=(const StripeCache&) = delete;

    // May be called at any time; what is too much goes as stripes are unpinned.
    void set_limits(const Limits& limits);
    // The stripe with `row_count` rows, empty when it was unknown or is known from another mapping. Requires
    // the stripe's lock.
    CachedStripe& pin(const StripeKey& key, uint32_t mapping_version, uint32_t row_count);
    // Requires the stripe's lock; the stripe may be gone afterwards.
    void unpin(CachedStripe& stripe);
    // Forgets the content of rows that are written by other means. Requires the stripe's lock.
    void forget(const StripeKey& key, uint32_t first_row, uint32_t row_count);

    // Age of what is live. It ends when all members were flushed: rows are live no more.
    [[nodiscard]] uint64_t age() const { return age_.load(std::memory_order_acquire); }
    void end_age();
    // Live rows keep the cache above its limits: its user flushes the members and calls end_age().
    [[nodiscard]] bool crowded() const { return crowded_.load(std::memory_order_relaxed); }
    [[nodiscard]] Counts counts();

private:
    using Order = std::list<CachedStripe>;
    struct Hash {
        size_t operator()(const StripeKey& key) const { return stripe_hash(key); }
    };
    struct Shard {
        Mutex mutex{LockRank::kStripeCache};
        Order order CW_GUARDED_BY(mutex);  // most recently used first
        std::unordered_map<StripeKey, Order::iterator, Hash> places CW_GUARDED_BY(mutex);
        uint64_t bytes CW_GUARDED_BY(mutex) = 0;
        uint32_t stripes_max CW_GUARDED_BY(mutex) = 0;
        uint64_t bytes_max CW_GUARDED_BY(mutex) = 0;
    };
    static constexpr uint32_t kShards = 16;

    Shard& shard_of(const StripeKey& key) { return shards_[stripe_hash(key) >> 32 & (kShards - 1)]; }
    void evict(Shard& shard) CW_REQUIRES(shard.mutex);

    std::array<Shard, kShards> shards_;
    std::atomic<uint64_t> age_{1};
    std::atomic<bool> crowded_{false};
};

}  // namespace cowraid
