// SPDX-License-Identifier: MIT
#include "sim/replay.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/assert.h"
#include "base/checksum.h"
#include "base/random.h"

namespace cowraid {

ReplayDevice::ReplayDevice(std::string name, uint64_t size_bytes, const BlockImage& base,
                           const BlockPool& pool)
    : name_(std::move(name)), size_bytes_(size_bytes), base_(base), pool_(pool)
{
}

std::byte* ReplayDevice::own_block(uint64_t number, size_t replaced_bytes)
{
    auto& block = own_[number];
    if (block == nullptr) {
        block = std::make_unique_for_overwrite<std::byte[]>(kBlockBytes);
        if (replaced_bytes < kBlockBytes)
            std::memcpy(block.get(), pool_.block(base_.get(number)).data(), kBlockBytes);
    }
    return block.get();
}

void ReplayDevice::peek(uint64_t offset, std::span<std::byte> out) const
{
    CW_ASSERT(out.size() <= size_bytes_ && offset <= size_bytes_ - out.size());
    while (!out.empty()) {
        const uint64_t number = offset / kBlockBytes;
        const uint64_t within = offset % kBlockBytes;
        const size_t part = std::min<size_t>(out.size(), kBlockBytes - within);
        const auto own = own_.find(number);
        const std::byte* from = own != own_.end() ? own->second.get() : pool_.block(base_.get(number)).data();
        std::memcpy(out.data(), from + within, part);
        out = out.subspan(part);
        offset += part;
    }
}

void ReplayDevice::poke(uint64_t offset, std::span<const std::byte> bytes)
{
    CW_ASSERT(bytes.size() <= size_bytes_ && offset <= size_bytes_ - bytes.size());
    while (!bytes.empty()) {
        const uint64_t within = offset % kBlockBytes;
        const size_t part = std::min<size_t>(bytes.size(), kBlockBytes - within);
        std::memcpy(own_block(offset / kBlockBytes, part) + within, bytes.data(), part);
        bytes = bytes.subspan(part);
        offset += part;
    }
}

void ReplayDevice::perform(IoRequest& request)
{
    request.result = Err::kOk;
    if (request.kind == IoKind::kFlush)
        return;
    const uint64_t bytes = request.kind == IoKind::kDiscard ? request.discard_bytes : request.bytes();
    if (bytes > size_bytes_ || request.offset.value > size_bytes_ - bytes) {
        request.result = Err::kIo;
        return;
    }
    uint64_t offset = request.offset.value;
    for (const iovec& vector : request.vectors) {
        auto* memory = static_cast<std::byte*>(vector.iov_base);
        if (request.kind == IoKind::kRead)
            peek(offset, {memory, vector.iov_len});
        else if (request.kind == IoKind::kWrite)
            poke(offset, {memory, vector.iov_len});
        offset += vector.iov_len;
    }
}

uint64_t ReplayDevice::content_hash() const
{
    uint64_t hash = base_.hash();
    for (const auto& [number, block] : own_) {
        hash -= BlockImage::share_of_hash(number, pool_.hash(base_.get(number)));
        hash += BlockImage::share_of_hash(number, checksum_of(block.get(), kBlockBytes));
    }
    return hash;
}

BlockImage ReplayDevice::image(BlockPool& pool) const
{
    BlockImage result;
    for (const auto& [number, index] : base_.blocks())
        result.set(number, pool.intern(pool_.block(index)), pool);
    for (const auto& [number, block] : own_)
        result.set(number, pool.intern({block.get(), kBlockBytes}), pool);
    return result;
}

ReplayCursor::ReplayCursor(const Recorder& recorder) : recorder_(recorder)
{
    optional_.resize(recorder.device_count());
    forced_.resize(recorder.device_count());
    for (uint32_t device = 0; device < recorder.device_count(); ++device)
        durable_.push_back(recorder.start(device));
}

// Applies the writes that are durable by now, in the order they were issued. One that overlaps an earlier
// write of which that is not known yet waits for it.
void ReplayCursor::make_durable(uint32_t device)
{
    const auto& writes = recorder_.writes();
    std::vector<uint32_t> pending;
    std::merge(optional_[device].begin(), optional_[device].end(), forced_[device].begin(),
               forced_[device].end(), std::back_inserter(pending));
    optional_[device].clear();
    forced_[device].clear();
    for (const uint32_t index : pending) {
        const RecordedWrite& write = writes[index];
        const auto overlaps = [&](uint32_t other) {
            return writes[other].first_block < write.first_block + write.content.size() &&
                   write.first_block < writes[other].first_block + writes[other].content.size();
        };
        if (write.durable >= instant_)
            optional_[device].push_back(index);
        else if (std::any_of(optional_[device].begin(), optional_[device].end(), overlaps) ||
                 std::any_of(forced_[device].begin(), forced_[device].end(), overlaps))
            forced_[device].push_back(index);
        else
            for (size_t at = 0; at < write.content.size(); ++at)
                durable_[device].set(write.first_block + at, write.content[at], recorder_.pool());
    }
}

void ReplayCursor::advance(uint64_t instant)
{
    CW_ASSERT(instant >= instant_);
    instant_ = instant;
    const auto& writes = recorder_.writes();
    for (; next_write_ < writes.size() && writes[next_write_].issued < instant; ++next_write_)
        optional_[writes[next_write_].device].push_back(static_cast<uint32_t>(next_write_));
    const auto& marks = recorder_.marks();
    while (mark_count_ < marks.size() && marks[mark_count_].time < instant)
        ++mark_count_;
    for (uint32_t device = 0; device < optional_.size(); ++device)
        make_durable(device);
}

std::span<const RecordedMark> ReplayCursor::marks() const
{
    return std::span(recorder_.marks()).first(mark_count_);
}

std::unique_ptr<ReplayDevice> ReplayCursor::device(uint32_t device, std::span<const ChosenWrite> chosen) const
{
    auto made = std::make_unique<ReplayDevice>(recorder_.device_name(device), recorder_.device_bytes(device),
                                               durable_[device], recorder_.pool());
    const std::vector<uint32_t>& forced = forced_[device];
    size_t forced_next = 0;
    for (const ChosenWrite& choice : chosen) {
        for (; forced_next < forced.size() && forced[forced_next] < choice.write; ++forced_next)
            apply(*made, {.write = forced[forced_next]});
        CW_ASSERT(recorder_.writes()[choice.write].device == device);
        apply(*made, choice);
    }
    for (; forced_next < forced.size(); ++forced_next)
        apply(*made, {.write = forced[forced_next]});
    return made;
}

void ReplayCursor::apply(ReplayDevice& made, const ChosenWrite& choice) const
{
    const RecordedWrite& write = recorder_.writes()[choice.write];
    CW_ASSERT(write.issued < instant_);
    CW_ASSERT(choice.unit_bytes == 0 || choice.unit_bytes == 512 || choice.unit_bytes == kBlockBytes);
    const size_t unit_bytes = choice.unit_bytes == 0 ? kBlockBytes : choice.unit_bytes;
    Prng prng(choice.seed);
    for (size_t block = 0; block < write.content.size(); ++block) {
        const auto content = recorder_.pool().block(write.content[block]);
        const uint64_t offset = (write.first_block + block) * kBlockBytes;
        for (size_t at = 0; at < kBlockBytes; at += unit_bytes) {
            if (choice.unit_bytes == 0 || prng.chance(1, 2))
                made.poke(offset + at, content.subspan(at, unit_bytes));
        }
    }
}

bool overlap_in_time(const RecordedWrite& a, const RecordedWrite& b)
{
    return a.completed > b.issued && b.completed > a.issued;
}

}  // namespace cowraid
