// SPDX-License-Identifier: MIT
#include "alloc/recorded_space.h"

#include <algorithm>
#include <utility>

#include "alloc/row_mask.h"
#include "base/assert.h"

namespace cowraid {

uint64_t window_stripes(const Geometry& geometry)
{
    constexpr uint64_t kWindowBlocks = 2048;
    return std::max<uint64_t>(1, kWindowBlocks / geometry.stripe_data_blocks());
}

RecordedSpace::RecordedSpace(VolumeAddress address, const Geometry& geometry)
    : address_(address),
      geometry_(geometry),
      stripe_blocks_(geometry.stripe_data_blocks()),
      window_blocks_(window_stripes(geometry) * stripe_blocks_),
      used_(geometry.data_blocks()),
      windows_(divide_up(geometry.data_blocks(), window_blocks_)),
      free_rows_(geometry.row_count()),
      free_stripes_(geometry.stripe_count())
{
    for (uint64_t window = 0; window < windows_.size(); ++window) {
        const uint64_t stripes = window_blocks(window).count / stripe_blocks_;
        windows_[window].free_stripes = static_cast<uint32_t>(stripes);
        windows_[window].free_rows = static_cast<uint32_t>(stripes * geometry_.rows());
    }
}

BlockRange RecordedSpace::window_blocks(uint64_t window) const
{
    const uint64_t first = window * window_blocks_;
    return {first, std::min(window_blocks_, geometry_.data_blocks() - first)};
}

RecordedSpace::WindowState RecordedSpace::measure(uint64_t window) const
{
    const BlockRange blocks = window_blocks(window);
    WindowState state = {.last_write = windows_[window].last_write};
    state.used_blocks = static_cast<uint32_t>(used_.count(blocks.first, blocks.count));
    if (state.used_blocks == blocks.count)
        return state;
    for (uint64_t stripe = blocks.first / stripe_blocks_; stripe * stripe_blocks_ < blocks.end(); ++stripe) {
        const uint32_t rows = stripe_state(used_, geometry_, stripe).free_rows;
        state.free_rows += rows;
        state.free_stripes += rows == geometry_.rows() ? 1 : 0;
    }
    return state;
}

void RecordedSpace::store_state(uint64_t window, const WindowState& state)
{
    const WindowState& old = windows_[window];
    used_blocks_ = used_blocks_ - old.used_blocks + state.used_blocks;
    free_rows_ = free_rows_ - old.free_rows + state.free_rows;
    free_stripes_ = free_stripes_ - old.free_stripes + state.free_stripes;
    windows_[window] = state;
}

Status RecordedSpace::load(const SpaceWindow& window)
{
    const uint64_t stripes = window_stripes(geometry_);
    if (window.first_stripe % stripes != 0 || window.first_stripe >= geometry_.stripe_count())
        return Err::kCorrupt;
    const uint64_t index = window.first_stripe / stripes;
    const BlockRange blocks = window_blocks(index);
    const bool mixed = window.used_count > 0 && window.used_count < window.block_count;
    if (window.block_count != blocks.count || window.used_count > window.block_count ||
        window.bitmap.size() != (mixed ? divide_up(blocks.count, 8) : 0))
        return Err::kCorrupt;
    if (windows_[index].last_write.value != 0 || windows_[index].used_blocks != 0)
        return Err::kCorrupt;
    if (mixed) {
        used_.load(blocks.first, blocks.count, window.bitmap);
        const bool tail_clear = blocks.count % 8 == 0 || window.bitmap.back() >> (blocks.count % 8) == 0;
        if (!tail_clear || used_.count(blocks.first, blocks.count) != window.used_count)
            return Err::kCorrupt;
    } else if (window.used_count > 0) {
        used_.set(blocks.first, blocks.count);
    }
    windows_[index].last_write = window.last_write;
    store_state(index, measure(index));
    return {};
}

void RecordedSpace::apply(TransactionId transaction, const std::vector<BlockRange>& allocated,
                          const std::vector<BlockRange>& freed, const std::vector<BlockRange>& rewritten,
                          std::vector<SpaceWindow>& changed)
{
    RangeCursor allocations(allocated);
    RangeCursor frees(freed);
    RangeCursor rewrites(rewritten);
    for (;;) {
        const uint64_t next = std::min({allocations.position(), frees.position(), rewrites.position()});
        if (next == ~uint64_t{0})
            return;
        const uint64_t window = next / window_blocks_;
        if (apply_window(window, transaction, allocations, frees, rewrites))
            changed.push_back(describe(window));
    }
}

// True: the window has a newer last write than before.
bool RecordedSpace::note_writer(uint64_t window, TransactionId transaction)
{
    const auto [writer, fresh] = writers_.try_emplace(window, transaction);
    return fresh || std::exchange(writer->second, transaction) != transaction;
}

bool RecordedSpace::apply_window(uint64_t window, TransactionId transaction, RangeCursor& allocated,
                                 RangeCursor& freed, RangeCursor& rewritten)
{
    const BlockRange blocks = window_blocks(window);
    scratch_.clear();
    for (uint64_t block = blocks.first; block < blocks.end(); block += 64)
        scratch_.push_back(
            used_.bits(block, static_cast<uint32_t>(std::min<uint64_t>(64, blocks.end() - block))));
    bool wrote = false;
    for (BlockRange part = allocated.next_below(blocks.end()); part.count > 0;
         part = allocated.next_below(blocks.end())) {
        used_.set(part.first, part.count);
        wrote = note_writer(window, transaction) || wrote;
    }
    while (rewritten.next_below(blocks.end()).count > 0)
        wrote = note_writer(window, transaction) || wrote;
    for (BlockRange part = freed.next_below(blocks.end()); part.count > 0;
         part = freed.next_below(blocks.end())) {
        CW_DEBUG_ASSERT(used_.all(part.first, part.count));
        used_.clear(part.first, part.count);
    }
    bool differs = false;
    for (uint64_t block = blocks.first, word = 0; block < blocks.end() && !differs; block += 64, ++word) {
        const auto count = static_cast<uint32_t>(std::min<uint64_t>(64, blocks.end() - block));
        differs = scratch_[word] != used_.bits(block, count);
    }
    if (differs)
        store_state(window, measure(window));
    return differs || wrote;
}

SpaceWindow RecordedSpace::describe(uint64_t window) const
{
    const BlockRange blocks = window_blocks(window);
    SpaceWindow out = {
        .group_address = address_,
        .first_stripe = blocks.first / stripe_blocks_,
        .last_write = windows_[window].last_write,
        .written = writers_.contains(window),
        .block_count = static_cast<uint32_t>(blocks.count),
        .used_count = windows_[window].used_blocks,
        .bitmap = {},
    };
    if (out.used_count > 0 && out.used_count < out.block_count) {
        out.bitmap.resize(divide_up(blocks.count, 8));
        used_.store(blocks.first, blocks.count, out.bitmap);
    }
    return out;
}

void RecordedSpace::set_durable(TransactionId transaction, Generation generation)
{
    for (auto writer = writers_.begin(); writer != writers_.end();) {
        if (writer->second > transaction) {
            ++writer;
            continue;
        }
        windows_[writer->first].last_write = std::max(windows_[writer->first].last_write, generation);
        writer = writers_.erase(writer);
    }
}

GroupUsage RecordedSpace::usage() const
{
    return {
        .group_address = address_,
        .used_blocks = used_blocks_,
        .free_rows = free_rows_,
        .free_stripes = free_stripes_,
    };
}

uint64_t RecordedSpace::memory_bytes() const
{
    return used_.bit_count() / 8 + windows_.size() * sizeof(WindowState);
}

}  // namespace cowraid
