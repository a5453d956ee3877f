// SPDX-License-Identifier: MIT
#include "sim/sim_device.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"

namespace cowraid {

void PowerSupply::arm(uint64_t events)
{
    CW_ASSERT(events > 0);
    last_event_.store(events_.load(std::memory_order_relaxed) + events, std::memory_order_release);
}

void PowerSupply::turn_on()
{
    last_event_.store(UINT64_MAX, std::memory_order_release);
    on_.store(true, std::memory_order_release);
}

bool PowerSupply::draw()
{
    if (!on())
        return false;
    const uint64_t event = events_.fetch_add(1, std::memory_order_acq_rel) + 1;
    const uint64_t last = last_event_.load(std::memory_order_acquire);
    if (event >= last)
        turn_off();
    return event <= last;
}

SimDevice::SimDevice(std::string name, uint64_t size_bytes, PowerSupply* power)
    : name_(std::move(name)), size_bytes_(size_bytes), power_(power)
{
}

SimDevice::~SimDevice() = default;

void SimDevice::perform(IoRequest& request)
{
    request.result = Err::kOk;
    const uint64_t bytes = request.kind == IoKind::kDiscard ? request.discard_bytes : request.bytes();
    if (request.kind != IoKind::kFlush &&
        (bytes > size_bytes_ || request.offset.value > size_bytes_ - bytes)) {
        request.result = Err::kIo;
        return;
    }
    MutexLock lock(mutex_);
    const bool event = request.kind == IoKind::kWrite || request.kind == IoKind::kFlush;
    if (power_ != nullptr && !(event ? power_->draw() : power_->on())) {
        request.result = Err::kMemberGone;
        return;
    }
    switch (request.kind) {
    case IoKind::kRead:
        read(request);
        break;
    case IoKind::kWrite:
        write(request);
        break;
    case IoKind::kFlush:
        forget_cache();
        break;
    case IoKind::kDiscard:
        discard(request);
        break;
    }
    // The machine that would have seen this completion lost power with the device.
    if (event && power_ != nullptr && !power_->on())
        request.result = Err::kMemberGone;
    else if (request.kind == IoKind::kWrite && request.durable)
        unflushed_.back().durable = true;
}

void SimDevice::read(IoRequest& request)
{
    uint64_t offset = request.offset.value;
    for (const iovec& vector : request.vectors) {
        load(offset, {static_cast<std::byte*>(vector.iov_base), vector.iov_len});
        offset += vector.iov_len;
    }
}

void SimDevice::write(IoRequest& request)
{
    Write record{request.offset.value, {}};
    record.payload.reserve(request.bytes());
    for (const iovec& vector : request.vectors) {
        const auto* from = static_cast<const std::byte*>(vector.iov_base);
        record.payload.insert(record.payload.end(), from, from + vector.iov_len);
    }
    store(record.offset, record.payload);
    unflushed_.push_back(std::move(record));
}

// Whole pages become zeros, the edges stay: "undefined" in a way that code must not rely on. It is a write
// like any other to the cache.
void SimDevice::discard(const IoRequest& request)
{
    const uint64_t begin = round_up(request.offset.value, kPageBytes);
    const uint64_t end = round_down(request.offset.value + request.discard_bytes, kPageBytes);
    std::vector<uint64_t> doomed;
    if (begin < end && (end - begin) / kPageBytes < current_.size()) {
        for (uint64_t index = begin / kPageBytes; index < end / kPageBytes; ++index) {
            if (current_.contains(index))
                doomed.push_back(index);
        }
    } else {
        for (const auto& [index, page] : current_) {
            if (index >= begin / kPageBytes && index < end / kPageBytes)
                doomed.push_back(index);
        }
        std::sort(doomed.begin(), doomed.end());
    }
    for (const uint64_t index : doomed) {
        Write record{index * kPageBytes, std::vector<std::byte>(kPageBytes)};
        store(record.offset, record.payload);
        unflushed_.push_back(std::move(record));
    }
}

void SimDevice::load(uint64_t offset, std::span<std::byte> out) const
{
    while (!out.empty()) {
        const uint64_t within = offset % kPageBytes;
        const size_t part = std::min<size_t>(out.size(), kPageBytes - within);
        const auto found = current_.find(offset / kPageBytes);
        if (found == current_.end())
            std::memset(out.data(), 0, part);
        else
            std::memcpy(out.data(), found->second->bytes + within, part);
        out = out.subspan(part);
        offset += part;
    }
}

// Keeps the content of a page as of the last flush; `page` is null where nothing was there.
void SimDevice::save_flushed(uint64_t index, std::unique_ptr<Page> page)
{
    flushed_.emplace(index, std::move(page));
}

SimDevice::Page& SimDevice::page_for_write(uint64_t index, bool keep_content)
{
    auto& slot = current_[index];
    const bool saved = flushed_.contains(index);
    if (slot != nullptr && saved)
        return *slot;
    std::unique_ptr<Page> old = std::move(slot);
    slot = std::make_unique_for_overwrite<Page>();
    if (keep_content) {
        if (old != nullptr)
            std::memcpy(slot->bytes, old->bytes, kPageBytes);
        else
            std::memset(slot->bytes, 0, kPageBytes);
    }
    if (!saved)
        save_flushed(index, std::move(old));
    return *slot;
}

void SimDevice::store(uint64_t offset, std::span<const std::byte> bytes)
{
    while (!bytes.empty()) {
        const uint64_t within = offset % kPageBytes;
        const size_t part = std::min<size_t>(bytes.size(), kPageBytes - within);
        Page& page = page_for_write(offset / kPageBytes, part < kPageBytes);
        std::memcpy(page.bytes + within, bytes.data(), part);
        bytes = bytes.subspan(part);
        offset += part;
    }
}

void SimDevice::forget_cache()
{
    flushed_.clear();
    unflushed_.clear();
}

void SimDevice::restore_flushed()
{
    for (auto& [index, page] : flushed_) {
        if (page == nullptr)
            current_.erase(index);
        else
            current_[index] = std::move(page);
    }
    flushed_.clear();
}

void SimDevice::apply_torn(const Write& write, Prng& prng, uint32_t unit_bytes)
{
    const std::span<const std::byte> payload(write.payload);
    for (size_t at = 0; at < payload.size(); at += unit_bytes) {
        if (prng.chance(1, 2))
            store(write.offset + at, payload.subspan(at, std::min<size_t>(unit_bytes, payload.size() - at)));
    }
}

void SimDevice::power_cut(Prng& prng, const PowerCutOptions& options)
{
    CW_ASSERT(options.unit_bytes == 512 || options.unit_bytes == 4096);
    CW_ASSERT(options.keep_percent + options.tear_percent <= 100);
    MutexLock lock(mutex_);
    restore_flushed();
    for (const Write& write : unflushed_) {
        const uint64_t draw = write.durable ? 0 : prng.below(100);
        if (write.durable || draw < options.keep_percent)
            store(write.offset, write.payload);
        else if (draw < options.keep_percent + options.tear_percent)
            apply_torn(write, prng, options.unit_bytes);
    }
    forget_cache();
}

void SimDevice::drop_cache()
{
    MutexLock lock(mutex_);
    restore_flushed();
    for (const Write& write : unflushed_)
        if (write.durable)
            store(write.offset, write.payload);
    forget_cache();
}

size_t SimDevice::unflushed_writes() const
{
    MutexLock lock(mutex_);
    return static_cast<size_t>(std::count_if(unflushed_.begin(), unflushed_.end(),
                                             [](const Write& write) { return !write.durable; }));
}

void SimDevice::peek(uint64_t offset, std::span<std::byte> out) const
{
    CW_ASSERT(out.size() <= size_bytes_ && offset <= size_bytes_ - out.size());
    MutexLock lock(mutex_);
    load(offset, out);
}

void SimDevice::poke(uint64_t offset, std::span<const std::byte> bytes)
{
    CW_ASSERT(bytes.size() <= size_bytes_ && offset <= size_bytes_ - bytes.size());
    MutexLock lock(mutex_);
    // Everywhere, so that neither a flush nor a power cut heals it.
    for (Write& write : unflushed_) {
        const uint64_t begin = std::max(offset, write.offset);
        const uint64_t end = std::min(offset + bytes.size(), write.offset + write.payload.size());
        if (write.durable && begin < end)
            std::memcpy(write.payload.data() + (begin - write.offset), bytes.data() + (begin - offset),
                        end - begin);
    }
    while (!bytes.empty()) {
        const uint64_t index = offset / kPageBytes;
        const uint64_t within = offset % kPageBytes;
        const size_t part = std::min<size_t>(bytes.size(), kPageBytes - within);
        auto& page = current_[index];
        if (page == nullptr)
            page = std::make_unique<Page>();
        std::memcpy(page->bytes + within, bytes.data(), part);
        if (const auto saved = flushed_.find(index); saved != flushed_.end()) {
            if (saved->second == nullptr)
                saved->second = std::make_unique<Page>();
            std::memcpy(saved->second->bytes + within, bytes.data(), part);
        }
        bytes = bytes.subspan(part);
        offset += part;
    }
}

void SimDevice::enlarge(uint64_t size_bytes)
{
    CW_ASSERT(size_bytes >= size_bytes_);
    size_bytes_ = size_bytes;
}

std::unique_ptr<SimDevice> SimDevice::clone(std::string name, PowerSupply* power) const
{
    Pages pages;
    {
        MutexLock lock(mutex_);
        for (const auto& [index, page] : current_)
            pages.emplace(index, std::make_unique<Page>(*page));
    }
    auto copy = std::make_unique<SimDevice>(std::move(name), size_bytes_, power);
    MutexLock lock(copy->mutex_);
    copy->current_ = std::move(pages);
    return copy;
}

uint64_t SimDevice::resident_bytes() const
{
    MutexLock lock(mutex_);
    uint64_t bytes = (current_.size() + flushed_.size()) * sizeof(Page);
    for (const Write& write : unflushed_)
        bytes += write.payload.capacity();
    return bytes;
}

}  // namespace cowraid
