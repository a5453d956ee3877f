// SPDX-License-Identifier: MIT
#include <atomic>
#include <vector>

#include "base/assert.h"
#include "device/block_device.h"
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

void IoCompletion::done()
{
    MutexLock lock(mutex_);
    ++done_count_;
    condition_.notify_all();
}

void IoCompletion::wait(uint32_t count)
{
    MutexLock lock(mutex_);
    while (done_count_ < count)
        condition_.wait(mutex_);
}

void run_io(std::span<IoRequest> batch)
{
    if (batch.empty())
        return;
    add(counters.batches, 1);
    // A single small transfer is one system call either way; a ring adds its own work to it.
    if (batch.size() == 1 && batch[0].kind == IoKind::kRead && batch[0].bytes() <= kMaxDirectBytes) {
        check_alignment(batch[0]);
        count_request(batch[0]);
        batch[0].device->perform(batch[0]);
        return;
    }
    static thread_local std::vector<IoRequest*> for_ring;
    std::vector<IoRequest*> ringed = std::move(for_ring);
    ringed.clear();
    Ring* ring = nullptr;
    bool ring_asked = false;
    IoCompletion completion;
    uint32_t started = 0;
    // Flushes go first: one does not cover the writes of its own batch, and where requests run one after
    // the other (simulated members) that must be visible.
    for (const bool flushes : {true, false}) {
        for (IoRequest& request : batch) {
            if ((request.kind == IoKind::kFlush) != flushes)
                continue;
            check_alignment(request);
            count_request(request);
            request.result = Err::kOk;
            const bool direct = request.kind != IoKind::kDiscard && request.device->ring_fd() >= 0;
            if (direct && !ring_asked) {
                ring = Ring::of_this_thread();
                ring_asked = true;
            }
            if (!direct && request.device->start(request, completion))
                ++started;
            else if (!direct || ring == nullptr)
                request.device->perform(request);
            else if (request.kind != IoKind::kFlush && !in_bounds(request))
                request.result = Err::kIo;
            else
                ringed.push_back(&request);
        }
    }
    if (!ringed.empty())
        add(counters.ring_enters, ring->run(ringed));
    completion.wait(started);
    for_ring = std::move(ringed);
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
