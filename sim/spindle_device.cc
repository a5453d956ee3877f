// SPDX-License-Identifier: MIT
#include "sim/spindle_device.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "base/assert.h"
#include "base/clock.h"

namespace cowraid {

namespace {

constexpr uint64_t kSecond = 1000000000;

// Whether the heads have to move for it.
bool is_transfer(const IoRequest& request)
{
    return request.kind == IoKind::kRead || request.kind == IoKind::kWrite;
}

}  // namespace

SpindleDevice::SpindleDevice(std::unique_ptr<BlockDevice> inner, const SpindleOptions& options)
    : inner_(std::move(inner)),
      options_(options),
      model_(options.constants, inner_->size_bytes(), options.phase),
      origin_(monotonic_ns())
{
    CW_ASSERT(options.time_scale > 0 && options.queue_depth > 0);
    CW_ASSERT(pthread_create(&server_, nullptr, server_main, this) == 0);
}

SpindleDevice::~SpindleDevice()
{
    {
        MutexLock lock(mutex_);
        CW_ASSERT(queue_.empty());
        stopping_ = true;
        arrived_.notify_all();
    }
    pthread_join(server_, nullptr);
}

uint64_t SpindleDevice::model_now() const
{
    return static_cast<uint64_t>(static_cast<double>(monotonic_ns() - origin_) / options_.time_scale);
}

void SpindleDevice::sleep_until(uint64_t model_time) const
{
    const uint64_t real =
        origin_ + static_cast<uint64_t>(static_cast<double>(model_time) * options_.time_scale);
    const timespec until{static_cast<time_t>(real / kSecond), static_cast<long>(real % kSecond)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR)
        continue;
}

void SpindleDevice::perform(IoRequest& request)
{
    IoCompletion completion;
    if (start(request, completion))
        completion.wait(1);
    else
        transfer(request);
}

bool SpindleDevice::start(IoRequest& request, IoCompletion& completion)
{
    const uint64_t bytes = request.bytes();
    const uint64_t size = size_bytes();
    // What cannot be served fails in no time.
    if (bypassed_.load(std::memory_order_acquire) ||
        (is_transfer(request) && (bytes == 0 || bytes > size || request.offset.value > size - bytes)))
        return false;
    MutexLock lock(mutex_);
    queue_.push_back({&request, &completion, model_now()});
    statistics_.queue_max = std::max(statistics_.queue_max, static_cast<uint32_t>(queue_.size()));
    arrived_.notify_one();
    return true;
}

// The inner device has a volatile cache, the drive has none.
void SpindleDevice::transfer(IoRequest& request)
{
    inner_->perform(request);
    if (request.kind != IoKind::kWrite || !request.result.ok())
        return;
    IoRequest flush{.kind = IoKind::kFlush, .device = inner_.get()};
    inner_->perform(flush);
    request.result = flush.result;
}

// When a request would be done if it were next. The time begins where the request before it ended, not when
// this thread woke up to see it, so that the machine's delays do not add up.
SpindleDevice::Choice SpindleDevice::plan(size_t index) const
{
    const Waiting& waiting = queue_[index];
    const uint64_t ready = waiting.arrival + options_.constants.command;
    const uint64_t from = std::max(free_at_, ready);
    if (!is_transfer(*waiting.request))
        return {index, from, {from, from, track_}, false};
    const bool write = waiting.request->kind == IoKind::kWrite;
    return {index, from,
            model_.serve(write, waiting.request->offset.value, waiting.request->bytes(), track_, from),
            false};
}

// The shortest positioning time first, among what the drive sees. A flush waits until it is the oldest.
SpindleDevice::Choice SpindleDevice::choose() const
{
    Choice oldest = plan(0);
    if (!is_transfer(*queue_[0].request))
        return oldest;
    if (oldest.busy_from - queue_[0].arrival > options_.age_limit) {
        oldest.aged = true;
        return oldest;
    }
    Choice best = oldest;
    const size_t seen = std::min<size_t>(queue_.size(), options_.queue_depth);
    for (size_t index = 1; index < seen; ++index) {
        if (!is_transfer(*queue_[index].request))
            continue;
        const Choice choice = plan(index);
        if (choice.service.transfer_start < best.service.transfer_start)
            best = choice;
    }
    return best;
}

void SpindleDevice::account(const IoRequest& request, const Choice& choice)
{
    SpindleStatistics::Kind& kind = request.kind == IoKind::kRead    ? statistics_.reads
                                    : request.kind == IoKind::kWrite ? statistics_.writes
                                                                     : statistics_.flushes;
    ++kind.requests;
    kind.bytes += request.bytes();
    kind.busy += choice.service.end - choice.busy_from;
    statistics_.aged += choice.aged ? 1 : 0;
    const uint64_t now = model_now();
    const uint64_t late = now > choice.service.end ? now - choice.service.end : 0;
    statistics_.late_sum += late;
    statistics_.late_max = std::max(statistics_.late_max, late);
}

void* SpindleDevice::server_main(void* self)
{
    static_cast<SpindleDevice*>(self)->run();
    return nullptr;
}

void SpindleDevice::run()
{
    // The kernel would round the end of a sleep by 50 microseconds.
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    for (;;) {
        Waiting next{};
        Choice choice;
        {
            MutexLock lock(mutex_);
            while (queue_.empty() && !stopping_)
                arrived_.wait(mutex_);
            if (queue_.empty())
                return;
            choice = choose();
            next = queue_[choice.index];
            queue_.erase(queue_.begin() + static_cast<ptrdiff_t>(choice.index));
        }
        // Before the sleep: the copying takes place while the platter turns.
        transfer(*next.request);
        sleep_until(choice.service.end);
        {
            MutexLock lock(mutex_);
            free_at_ = choice.service.end;
            track_ = choice.service.last_track;
            account(*next.request, choice);
        }
        next.completion->done(*next.request);
    }
}

SpindleStatistics SpindleDevice::statistics() const
{
    MutexLock lock(mutex_);
    return statistics_;
}

void SpindleDevice::forget_statistics()
{
    MutexLock lock(mutex_);
    statistics_ = {};
}

}  // namespace cowraid
