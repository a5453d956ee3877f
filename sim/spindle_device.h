// SPDX-License-Identifier: MIT
// A simulated disk drive in front of a member in memory: requests take the time that heads and platter need,
// so that disk-bound cases can be measured again and again. No write cache: a write is durable when it is
// done, and a flush costs no more than the requests before it. No read-ahead either.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "device/block_device.h"
#include "sim/spindle_model.h"

namespace cowraid {

struct SpindleOptions {
    SpindleConstants constants;
    // Real seconds per second of the drive: 0.1 is ten times as fast. The machine's own delays do not shrink
    // with it (SpindleStatistics::late).
    double time_scale = 1;
    uint64_t phase = 0;  // of the platter, nanoseconds; drives of one volume should differ
    uint32_t queue_depth = 32;  // requests the drive sees; the rest waits in the order of arrival
    // A request that has waited this long (model nanoseconds) is served before nearer ones.
    uint64_t age_limit = 250000000;
};

// Nanoseconds are the drive's, not the machine's.
struct SpindleStatistics {
    struct Kind {
        uint64_t requests = 0, bytes = 0;
        uint64_t busy = 0;  // from the end of the request before, or from its own start, to its end
    };
    Kind reads, writes, flushes;
    // How much later than it should the machine said that requests were done. Requests queued behind are not
    // delayed by it; whoever waits for an answer before it asks again is.
    uint64_t late_sum = 0, late_max = 0;
    uint64_t aged = 0;  // requests served out of turn by the age limit
    uint32_t queue_max = 0;  // most requests waiting at a time
};

class SpindleDevice final : public BlockDevice {
public:
    SpindleDevice(std::unique_ptr<BlockDevice> inner, const SpindleOptions& options);
    // No request may be under way.
    ~SpindleDevice() override;

    [[nodiscard]] uint64_t size_bytes() const override { return inner_->size_bytes(); }
    [[nodiscard]] const char* name() const override { return inner_->name(); }
    void perform(IoRequest& request) override;
    [[nodiscard]] bool start(IoRequest& request, IoCompletion& completion) override;

    // While bypassed the drive takes no time and counts nothing: for filling and checking a volume. Neither
    // may be called while requests are under way. A new drive is engaged.
    void bypass() { bypassed_.store(true, std::memory_order_release); }
    void engage() { bypassed_.store(false, std::memory_order_release); }

    [[nodiscard]] SpindleStatistics statistics() const;
    void forget_statistics();

private:
    struct Waiting {
        IoRequest* request;
        IoCompletion* completion;
        uint64_t arrival;  // model time
    };
    // What is done next, and when.
    struct Choice {
        size_t index = 0;
        uint64_t busy_from = 0;
        SpindleService service;
        bool aged = false;
    };

    static void* server_main(void* self);
    void run();
    [[nodiscard]] Choice choose() const CW_REQUIRES(mutex_);
    [[nodiscard]] Choice plan(size_t index) const CW_REQUIRES(mutex_);
    void account(const IoRequest& request, const Choice& choice) CW_REQUIRES(mutex_);
    void transfer(IoRequest& request);
    [[nodiscard]] uint64_t model_now() const;
    void sleep_until(uint64_t model_time) const;

    const std::unique_ptr<BlockDevice> inner_;
    const SpindleOptions options_;
    const SpindleModel model_;
    const uint64_t origin_;  // monotonic nanoseconds at model time 0
    std::atomic<bool> bypassed_{false};

    mutable Mutex mutex_{LockRank::kDevice};
    CondVar arrived_;
    std::vector<Waiting> queue_ CW_GUARDED_BY(mutex_);  // in the order of arrival
    uint64_t free_at_ CW_GUARDED_BY(mutex_) = 0;  // model time at which the last request was done
    uint64_t track_ CW_GUARDED_BY(mutex_) = 0;
    SpindleStatistics statistics_ CW_GUARDED_BY(mutex_);
    bool stopping_ CW_GUARDED_BY(mutex_) = false;
    pthread_t server_{};  // uses all of the above
};

}  // namespace cowraid
