// SPDX-License-Identifier: MIT
// Where writes in place wait a moment for others of their stripes, so that they are read for, logged and
// written together. Private to raid56/.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/thread.h"
#include "raid56/array.h"
#include "raid56/stripe_lock.h"

namespace cowraid {

struct PartialWrites;

// One block of one write.
struct PendingBlock {
    uint32_t row = 0;
    uint32_t column = 0;
    const std::byte* memory = nullptr;
    WriteRequest* request = nullptr;
    uint32_t write = 0;  // index in the request
    Status result;  // when it is done
};

// Everything that waits for one stripe on behalf of one origin, in the order it came.
struct PendingStripe {
    StripeKey key;
    Ref<const ArrayGroup> group;
    WriteOrigin origin;
    std::vector<PendingBlock> blocks;

    [[nodiscard]] bool full() const { return blocks.size() >= group->geometry.stripe_data_blocks(); }
};

// Stripes are spread over shards by ranges, so that neighbours meet. A shard opens when one of its stripes is
// full, when it holds much, when somebody waits, or when it has waited itself: whoever opens it takes all of
// it that nobody works on and carries it out as one batch. What came meanwhile for these stripes is the next
// batch: the lock of a stripe is handed on together with everything that queued up. Thread-safe.
class Plug {
public:
    Plug(PartialWrites& partial, bool enabled) : partial_(partial), enabled_(enabled) { }
    ~Plug();  // everything must have been waited for
    Plug(const Plug&) = delete;
    Plug& operator=(const Plug&) = delete;

    // Before anything is submitted; kNoThread: there were not enough threads.
    Status start(uint32_t worker_count);
    void set_enabled(bool enabled) { enabled_.store(enabled, std::memory_order_relaxed); }
    // Array::submit() and wait().
    void submit(WriteRequest& request);
    Status wait(WriteRequest& request);

private:
    struct Shard {
        Mutex mutex{LockRank::kPlug};
        std::map<StripeKey, std::vector<PendingStripe>> pending CW_GUARDED_BY(mutex);  // oldest origin first
        std::set<StripeKey> busy CW_GUARDED_BY(mutex);  // somebody works on them
        uint64_t blocks CW_GUARDED_BY(mutex) = 0;
        bool has_full_stripe CW_GUARDED_BY(mutex) = false;
        uint64_t first_ns CW_GUARDED_BY(mutex) = 0;  // arrival of the oldest and the newest of them
        uint64_t last_ns CW_GUARDED_BY(mutex) = 0;
    };
    static constexpr uint32_t kShards = 16;
    static constexpr uint64_t kShardStripes = 64;  // neighbours in one shard
    // A shard opens when it holds this much.
    static constexpr uint64_t kShardBytes = 16 * kMiB;
    // A batch ends after the stripe with which it holds this many rows.
    static constexpr uint64_t kBatchRows = 512;
    static constexpr uint64_t kIdleNs = 2'000'000;
    static constexpr uint64_t kPatienceNs = 10'000'000;

    static size_t shard_index(const StripeKey& key);
    static Status resolve(const ArrayState& state, const BlockWrite& write, const ArrayGroup*& group);
    void cut(WriteRequest& request, uint32_t write, const ArrayGroup& group,
             std::vector<PendingStripe>& parts) const;
    void add(PendingStripe part);
    [[nodiscard]] bool due(const Shard& shard, uint64_t now) const CW_REQUIRES(shard.mutex);
    // Takes and carries out one batch. False: nothing was there to be taken.
    bool work(Shard& shard);
    std::vector<PendingStripe> take(Shard& shard);
    void finish(Shard& shard, std::span<const PendingStripe> batch);
    void complete(std::span<PendingStripe> batch);
    void poke(WriteRequest& request);
    bool work_on_due(bool& any_waits);
    void run_worker();
    static void* worker_main(void* self);
    void wake_worker();

    PartialWrites& partial_;
    std::atomic<bool> enabled_;
    std::array<Shard, kShards> shards_;

    // The array's part of requests under way, by their address.
    struct RequestShard {
        Mutex mutex{LockRank::kPlugRequest};
        CondVar changed;
    };
    RequestShard& shard_of(const WriteRequest& request);
    std::array<RequestShard, kShards> requests_;

    Mutex worker_mutex_{LockRank::kPlugRequest};
    CondVar worker_wake_;
    bool work_waits_ CW_GUARDED_BY(worker_mutex_) = false;
    bool stopping_ CW_GUARDED_BY(worker_mutex_) = false;
    std::vector<Thread> workers_;
};

}  // namespace cowraid
