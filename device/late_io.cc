// SPDX-License-Identifier: MIT
#include "device/late_io.h"

#include <algorithm>
#include <atomic>
#include <ctime>

#include "base/mutex.h"
#include "device/ring.h"

namespace cowraid {

namespace {

struct LateList {
    std::atomic<size_t> count{0};
    std::atomic<uint64_t> bytes{0};
    Mutex mutex{LockRank::kLateIo};
    std::vector<std::unique_ptr<LateIo>> list CW_GUARDED_BY(mutex);
};

LateList& late_list()
{
    static auto* list = new LateList;  // never destroyed: threads may outlive main()
    return *list;
}

uint64_t bytes_of(const LateIo& late)
{
    uint64_t bytes = 0;
    for (const AlignedBuffer& memory : late.memory)
        bytes += memory.size();
    return bytes;
}

}  // namespace

std::unique_ptr<LateIo> LateIo::give_up(std::span<const IoRequest> batch,
                                        std::unique_ptr<IoCompletion> completion, uint32_t started)
{
    std::unique_ptr<LateIo> late(new LateIo);
    late->completion_ = completion ? std::move(completion) : std::make_unique<IoCompletion>();
    late->started_ = started;
    late->late_ = late->completion_->open(batch);
    late->ring_ = Ring::leave_busy();
    return late;
}

LateIo::~LateIo() = default;

bool LateIo::finished()
{
    if (ring_ != nullptr) {
        ring_->reap();
        if (!ring_->idle())
            return false;
    }
    return completion_->wait(started_, 0);
}

bool LateIo::uses(const BlockDevice& device) const
{
    for (size_t number = 0; number < requests.size(); ++number)
        if (late_[number] && requests[number].device == &device)
            return true;
    return false;
}

void leave_behind(std::unique_ptr<LateIo> late)
{
    LateList& all = late_list();
    MutexLock lock(all.mutex);
    all.bytes.fetch_add(bytes_of(*late));
    all.list.push_back(std::move(late));
    all.count.store(all.list.size(), std::memory_order_release);
}

bool may_leave_more_behind()
{
    const LateList& all = late_list();
    const auto is_full = [&] {
        return all.count.load(std::memory_order_acquire) >= kLateMax ||
               all.bytes.load(std::memory_order_acquire) >= kLateBytesMax;
    };
    if (is_full())
        reap_late_io();
    return !is_full();
}

void reap_late_io()
{
    LateList& all = late_list();
    if (all.count.load(std::memory_order_acquire) == 0)
        return;
    std::vector<std::unique_ptr<LateIo>> done;  // freed without the mutex
    MutexLock lock(all.mutex);
    const auto end = std::partition(all.list.begin(), all.list.end(),
                                    [](const std::unique_ptr<LateIo>& late) { return !late->finished(); });
    for (auto late = end; late != all.list.end(); ++late)
        all.bytes.fetch_sub(bytes_of(**late));
    std::move(end, all.list.end(), std::back_inserter(done));
    all.list.erase(end, all.list.end());
    all.count.store(all.list.size(), std::memory_order_release);
}

void wait_for_late_io(const BlockDevice& device)
{
    const auto in_use = [&] {
        LateList& all = late_list();
        MutexLock lock(all.mutex);
        return std::any_of(all.list.begin(), all.list.end(),
                           [&](const std::unique_ptr<LateIo>& late) { return late->uses(device); });
    };
    for (reap_late_io(); in_use(); reap_late_io()) {
        const timespec pause{0, 5'000'000};
        nanosleep(&pause, nullptr);
    }
}

}  // namespace cowraid
