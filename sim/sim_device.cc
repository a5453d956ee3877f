// SPDX-License-Identifier: MIT
#include "sim/sim_device.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"

namespace cowraid {
namespace {

// Reads what the vectors of a request hold, one part after the other.
class VectorReader {
public:
    explicit VectorReader(std::span<const iovec> vectors) : vectors_(vectors) { }

    void read(std::span<std::byte> out)
    {
        while (!out.empty()) {
            const iovec& vector = vectors_.front();
            const size_t part = std::min(out.size(), vector.iov_len - done_);
            if (part > 0)
                std::memcpy(out.data(), static_cast<const std::byte*>(vector.iov_base) + done_, part);
            out = out.subspan(part);
            done_ += part;
            if (done_ == vector.iov_len) {
                vectors_ = vectors_.subspan(1);
                done_ = 0;
            }
        }
    }

private:
    std::span<const iovec> vectors_;
    size_t done_ = 0;  // bytes of the first vector
};

}  // namespace

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

SimDevice::Page& SimDevice::alone(PageRef& page)
{
    if (!page) {
        page = make_ref<Page>();
    } else if (page->reference_count() > 1) {
        PageRef copy(new Page);
        std::memcpy(copy->bytes, page->bytes, kPageBytes);
        page = std::move(copy);
    }
    return *page;
}

std::span<const std::byte> SimDevice::Piece::content() const
{
    return page ? std::span<const std::byte>(page->bytes) : std::span<const std::byte>(part);
}

std::span<std::byte> SimDevice::Piece::content_for_write()
{
    return page ? std::span<std::byte>(alone(page).bytes) : std::span<std::byte>(part);
}

void SimDevice::write(IoRequest& request)
{
    Write record{request.offset.value, request.bytes()};
    VectorReader from(request.vectors);
    const uint64_t end = record.offset + record.size_bytes;
    for (uint64_t offset = record.offset; offset < end;) {
        const uint64_t next = std::min(round_down(offset, kPageBytes) + kPageBytes, end);
        Piece& piece = record.pieces.emplace_back();
        if (next - offset == kPageBytes)
            piece.page = PageRef(new Page);
        else
            piece.part.resize(next - offset);
        from.read(piece.content_for_write());
        offset = next;
    }
    store(record);
    unflushed_.push_back(std::move(record));
}

// Whole units become zeros, the edges stay: "undefined" in a way that code must not rely on. It is a write
// like any other to the cache.
void SimDevice::discard(const IoRequest& request)
{
    const uint64_t begin = round_up(request.offset.value, kDiscardBytes);
    const uint64_t end = round_down(request.offset.value + request.discard_bytes, kDiscardBytes);
    std::vector<uint64_t> doomed;
    if (begin < end && (end - begin) / kPageBytes < current_.size()) {
        for (uint64_t index = begin / kPageBytes; index < end / kPageBytes; ++index) {
            if (current_.contains(index))
                doomed.push_back(index);
        }
    } else {
        current_.for_each([&](uint64_t index, const PageRef&) {
            if (index >= begin / kPageBytes && index < end / kPageBytes)
                doomed.push_back(index);
        });
        std::sort(doomed.begin(), doomed.end());
    }
    for (const uint64_t index : doomed) {
        Write record{index * kPageBytes, kPageBytes};
        record.pieces.push_back({make_ref<Page>(), {}});
        store(record);
        unflushed_.push_back(std::move(record));
    }
}

void SimDevice::load(uint64_t offset, std::span<std::byte> out) const
{
    while (!out.empty()) {
        const uint64_t within = offset % kPageBytes;
        const size_t part = std::min<size_t>(out.size(), kPageBytes - within);
        const PageRef* const page = current_.find(offset / kPageBytes);
        if (page == nullptr)
            std::memset(out.data(), 0, part);
        else
            std::memcpy(out.data(), (*page)->bytes + within, part);
        out = out.subspan(part);
        offset += part;
    }
}

// Keeps the content of the page as of the last flush; null where nothing was there.
SimDevice::Page& SimDevice::page_for_write(uint64_t index)
{
    PageRef& slot = current_.slot(index);
    flushed_.add(index, slot);
    return alone(slot);
}

void SimDevice::store_page(uint64_t index, PageRef page)
{
    PageRef& slot = current_.slot(index);
    flushed_.add(index, std::move(slot));
    slot = std::move(page);
}

// Within one page.
void SimDevice::store_part(uint64_t offset, std::span<const std::byte> bytes)
{
    std::memcpy(page_for_write(offset / kPageBytes).bytes + offset % kPageBytes, bytes.data(), bytes.size());
}

void SimDevice::store(const Write& write)
{
    uint64_t offset = write.offset;
    for (const Piece& piece : write.pieces) {
        if (piece.page)
            store_page(offset / kPageBytes, piece.page);
        else
            store_part(offset, piece.part);
        offset = round_down(offset, kPageBytes) + kPageBytes;
    }
}

void SimDevice::forget_cache()
{
    flushed_.clear();
    unflushed_.clear();
}

void SimDevice::restore_flushed()
{
    flushed_.for_each([this](uint64_t index, PageRef& page) CW_NO_THREAD_SAFETY_ANALYSIS {
        if (!page)
            current_.erase(index);
        else
            current_.slot(index) = std::move(page);
    });
    flushed_.clear();
}

// Units count from the begin of the write.
void SimDevice::apply_torn(const Write& write, Prng& prng, uint32_t unit_bytes)
{
    uint64_t offset = write.offset, unit_end = write.offset;
    bool survives = false;
    for (const Piece& piece : write.pieces) {
        std::span<const std::byte> rest = piece.content();
        while (!rest.empty()) {
            if (offset == unit_end) {
                survives = prng.chance(1, 2);
                unit_end += unit_bytes;
            }
            const size_t part = std::min<uint64_t>(rest.size(), unit_end - offset);
            if (survives)
                store_part(offset, rest.first(part));
            rest = rest.subspan(part);
            offset += part;
        }
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
            store(write);
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
            store(write);
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
    for (Write& write : unflushed_)
        if (write.durable)
            poke_write(write, offset, bytes);
    while (!bytes.empty()) {
        const uint64_t index = offset / kPageBytes;
        const uint64_t within = offset % kPageBytes;
        const size_t part = std::min<size_t>(bytes.size(), kPageBytes - within);
        std::memcpy(alone(current_.slot(index)).bytes + within, bytes.data(), part);
        if (PageRef* const saved = flushed_.find(index); saved != nullptr)
            std::memcpy(alone(*saved).bytes + within, bytes.data(), part);
        bytes = bytes.subspan(part);
        offset += part;
    }
}

void SimDevice::poke_write(Write& write, uint64_t offset, std::span<const std::byte> bytes)
{
    uint64_t piece_begin = write.offset;
    for (Piece& piece : write.pieces) {
        const uint64_t piece_end = piece_begin + piece.content().size();
        const uint64_t begin = std::max(offset, piece_begin),
                       end = std::min(offset + bytes.size(), piece_end);
        if (begin < end)
            std::memcpy(piece.content_for_write().data() + (begin - piece_begin),
                        bytes.data() + (begin - offset), end - begin);
        piece_begin = piece_end;
    }
}

void SimDevice::enlarge(uint64_t size_bytes)
{
    CW_ASSERT(size_bytes >= size_bytes_);
    size_bytes_ = size_bytes;
}

std::unique_ptr<SimDevice> SimDevice::clone(std::string name, PowerSupply* power) const
{
    PageTable pages;
    {
        MutexLock lock(mutex_);
        pages = current_;
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
        bytes += write.size_bytes;
    return bytes;
}

}  // namespace cowraid
