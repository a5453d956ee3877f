// SPDX-License-Identifier: MIT
// A member in memory with a volatile write cache: what was not flushed may be lost, whole or in part.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/random.h"
#include "device/block_device.h"
#include "sim/page_table.h"

namespace cowraid {

// One power supply for all simulated members of a machine. Off, they answer kMemberGone and change nothing.
// Thread-safe.
class PowerSupply {
public:
    // Power fails right after the `events`-th write or flush from now, counted over all devices on this
    // supply; that last write may be torn like any other that was not flushed.
    void arm(uint64_t events);
    void turn_off() { on_.store(false, std::memory_order_release); }
    // Cancels arm().
    void turn_on();
    [[nodiscard]] bool on() const { return on_.load(std::memory_order_acquire); }
    // Writes and flushes since the start, to learn how far a run can be armed.
    [[nodiscard]] uint64_t events() const { return events_.load(std::memory_order_relaxed); }
    // Counts one event. False when power was off already: the event did not happen.
    bool draw();

private:
    std::atomic<bool> on_{true};
    std::atomic<uint64_t> events_{0};
    std::atomic<uint64_t> last_event_{UINT64_MAX};
};

// How a cache loses its content. Each write since the last flush is kept, torn or dropped on its own.
struct PowerCutOptions {
    uint32_t keep_percent = 40;
    uint32_t tear_percent = 20;  // the rest is dropped
    uint32_t unit_bytes = 512;  // of a torn write each unit survives or not: 512 or 4096
};

class SimDevice final : public BlockDevice {
public:
    // Reads as zeros at first. `size_bytes` may be huge: memory is used by what is written. `power` (may be
    // null) must outlive the device.
    SimDevice(std::string name, uint64_t size_bytes, PowerSupply* power = nullptr);
    ~SimDevice() override;

    [[nodiscard]] uint64_t size_bytes() const override { return size_bytes_; }
    [[nodiscard]] const char* name() const override { return name_.c_str(); }
    void perform(IoRequest& request) override;

    // Loses the cache: the content becomes what was flushed plus a random choice of what was not, applied
    // in the order of the writes. The device goes on answering.
    void power_cut(Prng& prng, const PowerCutOptions& options);
    // Loses the cache completely (F20 of the fault model: a controller reset).
    void drop_cache();
    // Number of writes since the last flush that a power cut could lose.
    [[nodiscard]] size_t unflushed_writes() const;

    // What the platters say, behind every cache, for injecting rot and for checks. In bounds, any alignment.
    void peek(uint64_t offset, std::span<std::byte> out) const;
    void poke(uint64_t offset, std::span<const std::byte> bytes);
    // The device becomes larger; what is new reads as zeros. While nobody uses it.
    void enlarge(uint64_t size_bytes);
    // A second device with the same content, all of it flushed.
    [[nodiscard]] std::unique_ptr<SimDevice> clone(std::string name, PowerSupply* power = nullptr) const;
    // Memory used by content, in bytes; what is shared with a clone counts for both.
    [[nodiscard]] uint64_t resident_bytes() const;

private:
    static constexpr uint32_t kPageBytes = SimPage::kBytes;
    static constexpr uint32_t kDiscardBytes = 16 * 1024;  // what a discard does not reach wholly stays
    // Shared by tables, writes and devices: a page that others hold, too, is copied before it changes.
    // Absent: never written, zeros.
    using Page = SimPage;
    using PageRef = SimPageRef;
    // A whole page, or a part of one.
    struct Piece {
        PageRef page;
        std::vector<std::byte> part;
        [[nodiscard]] std::span<const std::byte> content() const;
        // Nobody else holds it.
        [[nodiscard]] std::span<std::byte> content_for_write();
    };
    // For a change: nobody else holds it.
    static Page& alone(PageRef& page);
    struct Write {
        uint64_t offset;
        uint64_t size_bytes;
        std::vector<Piece> pieces{};  // one for each page it touches
        bool durable = false;  // on the platters, but what was written before may not be
    };

    void read(IoRequest& request) CW_REQUIRES(mutex_);
    void write(IoRequest& request) CW_REQUIRES(mutex_);
    void discard(const IoRequest& request) CW_REQUIRES(mutex_);
    void forget_cache() CW_REQUIRES(mutex_);
    void restore_flushed() CW_REQUIRES(mutex_);
    Page& page_for_write(uint64_t index) CW_REQUIRES(mutex_);
    void store_page(uint64_t index, PageRef page) CW_REQUIRES(mutex_);
    void store_part(uint64_t offset, std::span<const std::byte> bytes) CW_REQUIRES(mutex_);
    void store(const Write& write) CW_REQUIRES(mutex_);
    static void poke_write(Write& write, uint64_t offset, std::span<const std::byte> bytes);
    void load(uint64_t offset, std::span<std::byte> out) const CW_REQUIRES(mutex_);
    void apply_torn(const Write& write, Prng& prng, uint32_t unit_bytes) CW_REQUIRES(mutex_);

    const std::string name_;
    uint64_t size_bytes_;
    PowerSupply* const power_;
    mutable Mutex mutex_{LockRank::kDevice};
    PageTable current_ CW_GUARDED_BY(mutex_);  // what reads see
    // Pages as they were at the last flush, of those written since (null: absent then).
    PageTable flushed_ CW_GUARDED_BY(mutex_);
    std::vector<Write> unflushed_ CW_GUARDED_BY(mutex_);  // in order
};

}  // namespace cowraid
