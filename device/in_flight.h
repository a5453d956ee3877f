// SPDX-License-Identifier: MIT
// Since when the requests of one device are under way. They are counted by the time at which they began, so
// that a request costs two atomic additions, and the age of the oldest a look at two cache lines.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <utility>

#include "base/clock.h"

namespace cowraid {

// Thread-safe, without locks. Times in milliseconds.
class InFlight {
public:
    // A request that is under way, until end().
    struct Ticket {
        InFlight* device = nullptr;  // null: none
        uint64_t began_ms = 0;

        void end()
        {
            if (device != nullptr)
                std::exchange(device, nullptr)->end(began_ms);
        }
        // It was never sent.
        void drop()
        {
            if (device != nullptr)
                std::exchange(device, nullptr)->slot_of(began_ms).fetch_sub(1, std::memory_order_relaxed);
        }
    };
    // Requests that took longer than the limit: how many in all, and the most that one took, in limits.
    struct Slow {
        uint64_t count = 0;
        uint32_t worst = 0;  // since it was asked last
    };

    [[nodiscard]] Ticket begin();
    // Since when the oldest is under way, up to kSlotMs too much; 0: none is.
    [[nodiscard]] uint64_t oldest_ms() const;
    // For how long something is under way and nothing was done: a device that is only busy ends one request
    // after the other.
    [[nodiscard]] uint64_t silent_ms() const;
    // For so long. Who waited that long finds it so, whatever the clock says.
    [[nodiscard]] bool is_silent(uint64_t wait_ms) const;
    // What is slow, from now on; 0: nothing.
    void set_limit_ms(uint64_t limit_ms) { limit_ms_.store(limit_ms, std::memory_order_relaxed); }
    [[nodiscard]] uint64_t slow_count() const { return slow_count_.load(std::memory_order_relaxed); }
    // slow_count(), and the worst since the last call. Time is charged once: what waited beside the worst
    // counts from now on.
    Slow take_slow();
    void reset_slow_count() { slow_count_.store(0, std::memory_order_relaxed); }
    // What was slow until now is nobody's fault.
    void forgive()
    {
        worst_.store(0, std::memory_order_relaxed);
        charged_until_.store(coarse_ms(), std::memory_order_relaxed);
    }

    static constexpr uint64_t kSlotMs = 512;
    static constexpr uint64_t kTickMs = 20;  // the clock is late by less

private:
    // Requests that begin within kSlotMs share a slot. One that is still there when the turn of its slot
    // comes again lends its age to newer ones, until all of them are done.
    static constexpr uint64_t kSlots = 16;
    static constexpr uint64_t kCountBits = 20;
    static constexpr uint64_t kCountMask = (uint64_t{1} << kCountBits) - 1;

    [[nodiscard]] std::atomic<uint64_t>& slot_of(uint64_t began_ms)
    {
        return slots_[began_ms / kSlotMs % kSlots];
    }
    void end(uint64_t began_ms);

    // Time at which the first of them began, and their count. Each word changes as a whole.
    alignas(64) std::array<std::atomic<uint64_t>, kSlots> slots_{};
    std::atomic<uint64_t> last_end_ms_{0};
    std::atomic<uint64_t> limit_ms_{0}, slow_count_{0}, charged_until_{0};
    std::atomic<uint32_t> worst_{0};
};

inline InFlight::Ticket InFlight::begin()
{
    const uint64_t now = coarse_ms();
    std::atomic<uint64_t>& slot = slot_of(now);
    uint64_t before = slot.load(std::memory_order_relaxed);
    uint64_t after;
    do
        after = ((before & kCountMask) == 0 ? now << kCountBits : before) + 1;
    while (!slot.compare_exchange_weak(before, after, std::memory_order_relaxed));
    return {this, now};
}

inline void InFlight::end(uint64_t began_ms)
{
    const uint64_t now = coarse_ms();
    last_end_ms_.store(now, std::memory_order_relaxed);
    slot_of(began_ms).fetch_sub(1, std::memory_order_relaxed);
    const uint64_t limit = limit_ms_.load(std::memory_order_relaxed);
    if (limit == 0 || now < began_ms + limit)
        return;
    slow_count_.fetch_add(1, std::memory_order_relaxed);
    const uint64_t from = std::max(began_ms, charged_until_.load(std::memory_order_relaxed));
    const auto times =
        static_cast<uint32_t>(std::min<uint64_t>((now - std::min(now, from)) / limit, UINT32_MAX));
    uint32_t worst = worst_.load(std::memory_order_relaxed);
    while (worst < times && !worst_.compare_exchange_weak(worst, times, std::memory_order_relaxed))
        continue;
}

inline uint64_t InFlight::oldest_ms() const
{
    uint64_t oldest = UINT64_MAX;
    for (const std::atomic<uint64_t>& slot : slots_) {
        const uint64_t value = slot.load(std::memory_order_relaxed);
        if ((value & kCountMask) != 0)
            oldest = std::min(oldest, value >> kCountBits);
    }
    const uint64_t now = oldest == UINT64_MAX ? 0 : coarse_ms();
    return now > oldest ? now - oldest : 0;
}

inline uint64_t InFlight::silent_ms() const
{
    const uint64_t oldest = oldest_ms();
    const uint64_t last = last_end_ms_.load(std::memory_order_relaxed), now = coarse_ms();
    return last == 0 ? oldest : std::min(oldest, now - std::min(now, last));
}

inline bool InFlight::is_silent(uint64_t wait_ms) const
{
    // Mostly something was done a moment ago, and the rest need not be looked at.
    if (coarse_ms() + kTickMs < last_end_ms_.load(std::memory_order_relaxed) + wait_ms)
        return false;
    const uint64_t silent = silent_ms();
    return silent != 0 && silent + kTickMs >= wait_ms;
}

inline InFlight::Slow InFlight::take_slow()
{
    const Slow slow{slow_count(), worst_.exchange(0, std::memory_order_relaxed)};
    if (slow.worst != 0)
        charged_until_.store(coarse_ms(), std::memory_order_relaxed);
    return slow;
}

}  // namespace cowraid
