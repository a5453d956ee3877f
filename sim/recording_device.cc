// SPDX-License-Identifier: MIT
#include "sim/recording_device.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/assert.h"
#include "base/buffer.h"

namespace cowraid {

Recorder::Recorder() = default;
Recorder::~Recorder() = default;

uint32_t Recorder::add_device(std::string name, uint64_t size_bytes)
{
    MutexLock lock(mutex_);
    devices_.push_back({std::move(name), size_bytes, {}, {}});
    return static_cast<uint32_t>(devices_.size() - 1);
}

void Recorder::set_start(uint32_t number, BlockDevice& source)
{
    constexpr uint64_t kReadBytes = 1 * kMiB;
    AlignedBuffer buffer(kReadBytes);
    const uint64_t size = source.size_bytes();
    for (uint64_t offset = 0; offset < size; offset += kReadBytes) {
        const iovec vector{buffer.data(), std::min(kReadBytes, size - offset)};
        IoRequest request{
            .kind = IoKind::kRead, .device = &source, .offset = {offset}, .vectors = {&vector, 1}};
        source.perform(request);
        CW_ASSERT(request.result.ok());
        MutexLock lock(mutex_);
        for (uint64_t at = 0; at < vector.iov_len; at += kBlockBytes) {
            const uint32_t index = pool_.intern(buffer.span().subspan(at, kBlockBytes));
            devices_[number].start.set((offset + at) / kBlockBytes, index, pool_);
        }
    }
}

void Recorder::set_start(uint32_t number, const BlockImage& image, const BlockPool& pool)
{
    MutexLock lock(mutex_);
    for (const auto& [block, index] : image.blocks())
        devices_[number].start.set(block, pool_.intern(pool.block(index)), pool_);
}

void Recorder::mark(uint64_t value, std::string_view text)
{
    MutexLock lock(mutex_);
    marks_.push_back({clock_++, value, std::string(text)});
}

void Recorder::record_content(RecordedWrite& write, const IoRequest& request)
{
    if (request.kind == IoKind::kDiscard) {
        const uint64_t end = round_down(request.offset.value + request.discard_bytes, kBlockBytes);
        const uint64_t begin = round_up(request.offset.value, kBlockBytes);
        write.first_block = begin / kBlockBytes;
        write.content.assign(begin < end ? (end - begin) / kBlockBytes : 0, BlockPool::kZeroBlock);
        std::array<std::byte, kBlockBytes> other;
        other.fill(kDiscardedByte);
        for (size_t at = 1 - write.first_block % 2; at < write.content.size(); at += 2)
            write.content[at] = pool_.intern(other);
        return;
    }
    CW_ASSERT(request.offset.value % kBlockBytes == 0);
    write.content.reserve(request.bytes() / kBlockBytes);
    for (const iovec& vector : request.vectors) {
        const auto* from = static_cast<const std::byte*>(vector.iov_base);
        CW_ASSERT(vector.iov_len % kBlockBytes == 0);
        for (size_t at = 0; at < vector.iov_len; at += kBlockBytes)
            write.content.push_back(pool_.intern({from + at, kBlockBytes}));
    }
}

size_t Recorder::begin_write(uint32_t number, const IoRequest& request)
{
    MutexLock lock(mutex_);
    RecordedWrite write{
        .device = number, .first_block = request.offset.value / kBlockBytes, .issued = clock_++};
    record_content(write, request);
    writes_.push_back(std::move(write));
    devices_[number].volatile_writes.push_back(writes_.size() - 1);
    return writes_.size() - 1;
}

void Recorder::end_write(size_t index, Status result, bool durable)
{
    MutexLock lock(mutex_);
    const uint64_t now = clock_++;
    if (!result.ok())
        return;
    RecordedWrite& write = writes_[index];
    write.completed = now;
    if (!durable)
        return;
    write.durable = now;
    std::erase(devices_[write.device].volatile_writes, index);
}

size_t Recorder::begin_flush(uint32_t number)
{
    MutexLock lock(mutex_);
    flushes_.push_back({.device = number, .issued = clock_++});
    return flushes_.size() - 1;
}

void Recorder::end_flush(size_t index, Status result)
{
    MutexLock lock(mutex_);
    const uint64_t now = clock_++;
    if (!result.ok())
        return;
    RecordedFlush& flush = flushes_[index];
    flush.completed = now;
    std::erase_if(devices_[flush.device].volatile_writes, [&](size_t write) CW_NO_THREAD_SAFETY_ANALYSIS {
        // One still on its way when the flush was issued is not covered (kNever is later than any time).
        if (writes_[write].completed > flush.issued)
            return false;
        writes_[write].durable = now;
        return true;
    });
}

uint64_t Recorder::end() const
{
    MutexLock lock(mutex_);
    return clock_;
}

std::vector<uint64_t> Recorder::instants() const
{
    MutexLock lock(mutex_);
    std::vector<uint64_t> times{0};
    for (const RecordedWrite& write : writes_) {
        times.push_back(write.issued + 1);
        if (write.durable == write.completed && write.durable != kNever)
            times.push_back(write.durable + 1);
    }
    for (const RecordedFlush& flush : flushes_) {
        if (flush.completed != kNever)
            times.push_back(flush.completed + 1);
    }
    std::sort(times.begin(), times.end());
    times.erase(std::unique(times.begin(), times.end()), times.end());
    return times;
}

RecordingDevice::RecordingDevice(Recorder& recorder, std::unique_ptr<BlockDevice> inner)
    : recorder_(recorder),
      inner_(std::move(inner)),
      number_(recorder.add_device(inner_->name(), inner_->size_bytes()))
{
}

void RecordingDevice::perform(IoRequest& request)
{
    // What inner_ does must see itself as the device.
    IoRequest passed = request;
    passed.device = inner_.get();
    const auto inside = [&](uint64_t bytes) {
        return bytes <= size_bytes() && request.offset.value <= size_bytes() - bytes;
    };
    switch (request.kind) {
    case IoKind::kRead:
        inner_->perform(passed);
        break;
    case IoKind::kWrite:
    case IoKind::kDiscard: {
        // Refused by every device without touching it.
        if (!inside(request.kind == IoKind::kWrite ? request.bytes() : request.discard_bytes)) {
            passed.result = Err::kIo;
            break;
        }
        const size_t index = recorder_.begin_write(number_, request);
        inner_->perform(passed);
        recorder_.end_write(index, passed.result, request.durable);
        break;
    }
    case IoKind::kFlush: {
        const size_t index = recorder_.begin_flush(number_);
        inner_->perform(passed);
        recorder_.end_flush(index, passed.result);
        break;
    }
    }
    request.result = passed.result;
}

}  // namespace cowraid
