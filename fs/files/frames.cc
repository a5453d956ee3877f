// SPDX-License-Identifier: MIT
#include "fs/files/frames.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace cowraid {

FileExtent Frame::extent(const Array& array, Generation generation) const
{
    FileExtent extent{first_block, block_count, ExtentKind::kData, places[0], generation, Compression::kZstd};
    for (uint32_t i = 0; i < stored_blocks(); ++i) {
        // Groups may lie side by side in the address space; a run stays inside one.
        if (i > 0 && places[i] == places[i - 1] + kBlockBytes &&
            array.group_at(places[i]) == array.group_at(places[i - 1]))
            ++extent.frame.back().block_count;
        else
            extent.frame.push_back({places[i], 1});
    }
    return extent;
}

FileExtent Frame::inline_extent(Generation generation) const
{
    FileExtent extent{first_block, block_count, ExtentKind::kData, {}, generation, Compression::kZstdInline};
    extent.inline_frame.assign(stored.data(), stored.data() + stored_bytes);
    return extent;
}

bool looks_incompressible(const Frame& frame)
{
    // Shannon's entropy of single bytes: 8 bits each for what is encrypted or compressed already. The
    // estimate from so many samples is 0.09 bits too small on average (Miller, 1955).
    constexpr size_t kSampleBytes = 2048, kSlices = 32;
    constexpr double kBitsPerByte = 7.8;
    constexpr size_t kSliceBytes = kSampleBytes / kSlices;
    std::array<uint16_t, 256> counts{};
    size_t samples = 0;
    const size_t step = size_t{frame.block_count} * kBlockBytes / kSlices;
    size_t skipped = 0, next = 0;
    for (const std::span<const std::byte> part : frame.content) {
        for (; next + kSliceBytes <= skipped + part.size(); next += step) {
            if (next < skipped)
                continue;
            for (const std::byte byte : part.subspan(next - skipped, kSliceBytes))
                ++counts[static_cast<uint8_t>(byte)];
            samples += kSliceBytes;
        }
        skipped += part.size();
    }
    double bits = 0;
    for (const uint16_t count : counts)
        if (count > 0)
            bits += count * std::log2(static_cast<double>(samples) / count);
    return bits > kBitsPerByte * static_cast<double>(samples);
}

namespace {

bool is_all_zeros(std::span<const std::byte> bytes)
{
    return bytes.front() == std::byte{0} &&
           std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

}  // namespace

void FrameWorkers::compress(Frame& frame, CompressionChoice choice, Scratch& scratch)
{
    frame.zeros =
        frame.block_count > 1 && std::all_of(frame.content.begin(), frame.content.end(), is_all_zeros);
    if (frame.zeros)
        return;
    if (!choice.force && looks_incompressible(frame))
        return;
    std::span<const std::byte> content = frame.content.front();
    if (frame.content.size() > 1) {
        size_t bytes = 0;
        for (const std::span<const std::byte> part : frame.content) {
            std::memcpy(scratch.content.data() + bytes, part.data(), part.size());
            bytes += part.size();
        }
        content = scratch.content.span().first(bytes);
    }
    const size_t room =
        std::max<size_t>(size_t{frame.block_count - 1} * kBlockBytes, frame.whole_file ? kInlineBytesMax : 0);
    const size_t bytes =
        scratch.compressor.compress(content, choice.level, scratch.stored.span().first(room));
    if (bytes == 0)
        return;
    frame.stored_bytes = bytes;
    frame.stored = AlignedBuffer(round_up(bytes, kBlockBytes));
    std::memcpy(frame.stored.data(), scratch.stored.data(), bytes);
    std::memset(frame.stored.data() + bytes, 0, frame.stored.size() - bytes);
}

FrameWorkers::~FrameWorkers()
{
    {
        MutexLock lock(mutex_);
        stopped_ = true;
    }
    wake_.notify_all();
    for (Thread& thread : threads_)
        thread.join();
}

void FrameWorkers::start(std::span<Frame* const> frames, CompressionChoice choice)
{
    if (frames.empty())
        return;
    {
        MutexLock lock(mutex_);
        frames_ = frames;
        choice_ = choice;
        next_ = 0;
        left_ = frames.size();
    }
    while (threads_.size() < thread_count_ && !no_more_threads_) {
        no_more_threads_ = !threads_.emplace_back().start(thread_main, this).ok();
        if (no_more_threads_)
            threads_.pop_back();
    }
    wake_.notify_all();
}

Frame* FrameWorkers::take(CompressionChoice& choice)
{
    choice = choice_;
    return next_ < frames_.size() ? frames_[next_++] : nullptr;
}

Frame* FrameWorkers::wait_for_frame(CompressionChoice& choice)
{
    MutexLock lock(mutex_);
    for (;;) {
        if (Frame* const frame = take(choice))
            return frame;
        if (stopped_)
            return nullptr;
        wake_.wait(mutex_);
    }
}

Frame* FrameWorkers::try_take(CompressionChoice& choice)
{
    MutexLock lock(mutex_);
    return take(choice);
}

void FrameWorkers::end_frame()
{
    MutexLock lock(mutex_);
    if (--left_ == 0)
        done_.notify_all();
}

void* FrameWorkers::thread_main(void* self)
{
    pthread_setname_np(pthread_self(), "cowraid-zstd");
    static_cast<FrameWorkers*>(self)->work();
    return nullptr;
}

void FrameWorkers::work()
{
    Scratch scratch;
    CompressionChoice choice;
    while (Frame* const frame = wait_for_frame(choice)) {
        compress(*frame, choice, scratch);
        end_frame();
    }
}

void FrameWorkers::finish()
{
    CompressionChoice choice;
    while (Frame* const frame = try_take(choice)) {
        if (own_ == nullptr)
            own_ = std::make_unique<Scratch>();
        compress(*frame, choice, *own_);
        end_frame();
    }
    MutexLock lock(mutex_);
    while (left_ > 0)
        done_.wait(mutex_);
    frames_ = {};
    next_ = 0;
}

}  // namespace cowraid
