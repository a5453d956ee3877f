// SPDX-License-Identifier: MIT
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/clock.h"
#include "device/late_io.h"
#include "device/ring.h"

namespace cowraid {

namespace {

constexpr uint64_t kMaxDirectBytes = 128 * kKiB;

struct Counters {
    std::atomic<uint64_t> reads{0}, read_bytes{0}, writes{0}, write_bytes{0}, flushes{0}, discards{0};
    std::atomic<uint64_t> batches{0}, ring_enters{0};
};

Counters counters;

void add(std::atomic<uint64_t>& counter, uint64_t amount)
{
    counter.fetch_add(amount, std::memory_order_relaxed);
}

void count_request(const IoRequest& request)
{
    request.device->note(request);
    switch (request.kind) {
    case IoKind::kRead:
        add(counters.reads, 1);
        add(counters.read_bytes, request.bytes());
        break;
    case IoKind::kWrite:
        add(counters.writes, 1);
        add(counters.write_bytes, request.bytes());
        break;
    case IoKind::kFlush:
        add(counters.flushes, 1);
        break;
    case IoKind::kDiscard:
        add(counters.discards, 1);
        break;
    }
}

void check_alignment([[maybe_unused]] const IoRequest& request)
{
    CW_ASSERT(request.device != nullptr);
    if (request.kind == IoKind::kFlush)
        return;
    CW_ASSERT(request.offset.value % kBlockBytes == 0);
    for ([[maybe_unused]] const iovec& vector : request.vectors) {
        CW_DEBUG_ASSERT(reinterpret_cast<uintptr_t>(vector.iov_base) % kBlockBytes == 0);
        CW_DEBUG_ASSERT(vector.iov_len % kBlockBytes == 0);
    }
}

bool in_bounds(const IoRequest& request)
{
    const uint64_t size = request.device->size_bytes();
    const uint64_t bytes = request.bytes();
    return bytes <= size && request.offset.value <= size - bytes;
}

}  // namespace

uint64_t IoRequest::bytes() const
{
    uint64_t sum = 0;
    for (const iovec& vector : vectors)
        sum += vector.iov_len;
    return sum;
}

void IoCompletion::done(IoRequest& request)
{
    MutexLock lock(mutex_);
    request.end_part();
    ++done_count_;
    condition_.notify_all();
}

bool IoCompletion::wait(uint32_t count, uint64_t until_ms)
{
    MutexLock lock(mutex_);
    while (done_count_ < count) {
        if (until_ms == kNoDeadline)
            condition_.wait(mutex_);
        else if (const uint64_t now = monotonic_ms(); now < until_ms)
            condition_.wait_for(mutex_, until_ms - now);
        else
            return false;
    }
    return true;
}

std::vector<bool> IoCompletion::open(std::span<const IoRequest> batch)
{
    std::vector<bool> open;
    MutexLock lock(mutex_);
    for (const IoRequest& request : batch)
        open.push_back(request.open_parts != 0);
    return open;
}

namespace {

void perform(IoRequest& request)
{
    request.open_parts = 1;
    request.device->perform(request);
    request.open_parts = 0;
    request.ticket.end();
}

// A batch on its way. What it leaves to a ring keeps its memory from one batch of a thread to the next.
struct Running {
    Ring* ring = nullptr;
    bool ring_asked = false;
    std::vector<IoRequest*> ringed;
    std::unique_ptr<IoCompletion> completion;  // of requests that devices took by start()
    uint32_t started = 0;

    void take(IoRequest& request);
};

void Running::take(IoRequest& request)
{
    check_alignment(request);
    count_request(request);
    request.result = Err::kOk;
    const bool discard = request.kind == IoKind::kDiscard;
    const bool direct =
        !discard && request.device->ring_fd() >= 0 && (!request.durable || request.device->durable_in_ring());
    if (direct && !std::exchange(ring_asked, true))
        ring = Ring::of_this_thread();
    if (!direct && completion == nullptr)
        completion = std::make_unique<IoCompletion>();
    request.open_parts = direct ? 0 : 1;
    if (direct && ring != nullptr && (request.kind == IoKind::kFlush || in_bounds(request))) {
        ringed.push_back(&request);
        return;
    }
    if (!discard)
        request.ticket = request.device->in_flight().begin();
    if (!direct && request.device->start(request, *completion)) {
        ++started;
    } else {
        perform(request);
    }
}

// False: some are not done, on a device that is silent.
bool wait_for_started(std::span<const IoRequest> batch, Running& running, uint64_t wait_ms)
{
    while (!running.completion->wait(running.started,
                                     wait_ms == kNoDeadline ? kNoDeadline : monotonic_ms() + wait_ms)) {
        const std::vector<bool> open = running.completion->open(batch);
        for (size_t number = 0; number < batch.size(); ++number)
            if (open[number] && batch[number].device->in_flight().is_silent(wait_ms))
                return false;
    }
    return true;
}

// Flushes go first: one does not cover the writes of its own batch, and where requests run one after the
// other (simulated members) that must be visible.
void hand_out(std::span<IoRequest> batch, Running& running)
{
    for (const bool flushes : {true, false})
        for (IoRequest& request : batch)
            if ((request.kind == IoKind::kFlush) == flushes)
                running.take(request);
}

}  // namespace

void run_io(std::span<IoRequest> batch)
{
    // A single small transfer is one system call either way; a ring adds its own work to it.
    if (batch.size() == 1 && batch[0].kind == IoKind::kRead && batch[0].bytes() <= kMaxDirectBytes) {
        add(counters.batches, 1);
        check_alignment(batch[0]);
        count_request(batch[0]);
        batch[0].ticket = batch[0].device->in_flight().begin();
        perform(batch[0]);
        return;
    }
    const std::unique_ptr<LateIo> late = run_io_for(batch, kNoDeadline);
    CW_ASSERT(late == nullptr);
}

std::unique_ptr<LateIo> run_io_for(std::span<IoRequest> batch, uint64_t wait_ms)
{
    if (batch.empty())
        return nullptr;
    add(counters.batches, 1);
    static thread_local std::vector<IoRequest*> for_ring;
    Running running{.ringed = std::move(for_ring)};
    running.ringed.clear();
    hand_out(batch, running);
    if (wait_ms != kNoDeadline && !may_leave_more_behind())
        wait_ms = kNoDeadline;
    bool done = true;
    if (!running.ringed.empty()) {
        add(counters.ring_enters, running.ring->run(running.ringed, wait_ms));
        done = running.ring->idle();
    }
    if (running.started > 0)
        done = wait_for_started(batch, running, wait_ms) && done;
    for_ring = std::move(running.ringed);
    return done ? nullptr : LateIo::give_up(batch, std::move(running.completion), running.started);
}

Status read_device(BlockDevice& device, DeviceOffset offset, std::span<std::byte> out)
{
    const iovec vector{out.data(), out.size()};
    IoRequest request{.kind = IoKind::kRead, .device = &device, .offset = offset, .vectors = {&vector, 1}};
    run_io({&request, 1});
    return request.result;
}

Status write_device(BlockDevice& device, DeviceOffset offset, std::span<std::byte> bytes)
{
    const iovec vector{bytes.data(), bytes.size()};
    IoRequest request{.kind = IoKind::kWrite, .device = &device, .offset = offset, .vectors = {&vector, 1}};
    run_io({&request, 1});
    return request.result;
}

IoStatistics io_statistics()
{
    const auto get = [](const std::atomic<uint64_t>& counter) {
        return counter.load(std::memory_order_relaxed);
    };
    return {
        .reads = get(counters.reads),
        .read_bytes = get(counters.read_bytes),
        .writes = get(counters.writes),
        .write_bytes = get(counters.write_bytes),
        .flushes = get(counters.flushes),
        .discards = get(counters.discards),
        .batches = get(counters.batches),
        .ring_enters = get(counters.ring_enters),
    };
}

}  // namespace cowraid
