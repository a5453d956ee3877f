// SPDX-License-Identifier: MIT
// A group's state comes into memory at first use and leaves it when it is idle.
#include <bit>
#include <utility>

#include "alloc/space_group.h"
#include "base/assert.h"
#include "base/log.h"

namespace cowraid {

Status SpaceGroup::ensure_loaded(SpaceSource& source, BitmapMemory& memory)
{
    GroupUsage expected;
    {
        MutexLock lock(mutex_);
        while (load_state_ == LoadState::kChanging)
            loaded_changed_.wait(mutex_);
        if (load_state_ == LoadState::kLoaded)
            return {};
        load_state_ = LoadState::kChanging;
        expected = recorded_;
    }
    Result<Loaded> loaded =
        memory.make_room(loaded_bytes()) ? read_windows(source, expected) : Result<Loaded>(Err::kNoMemory);
    if (loaded.ok()) {
        install(std::move(*loaded));
        return {};
    }
    CW_LOG_ERROR("block group %llu: its free space cannot be read: %s",
                 static_cast<unsigned long long>(address_.value), err_text(loaded.err()));
    MutexLock lock(mutex_);
    load_state_ = LoadState::kBroken;
    publish();
    loaded_changed_.notify_all();
    return loaded.err();
}

// Three bitmaps of blocks and the states of windows; of stripes the tree of free runs, and those with holes
// and with runs of each length.
uint64_t SpaceGroup::loaded_bytes() const
{
    const uint64_t bitmaps = 3 + static_cast<uint64_t>(std::bit_width(geometry_.rows()));
    return geometry_.data_blocks() / 2 + geometry_.stripe_count() * bitmaps / 8 +
           geometry_.stripe_count() / 2;
}

Result<SpaceGroup::Loaded> SpaceGroup::read_windows(SpaceSource& source, const GroupUsage& expected) const
{
    std::vector<SpaceWindow> windows;
    CW_TRY(source.load_windows(address_, windows));
    Loaded loaded = {
        .space = std::make_unique<GroupSpace>(address_, geometry_),
        .record = std::make_unique<RecordedSpace>(address_, geometry_),
    };
    for (const SpaceWindow& window : windows) {
        CW_TRY(loaded.record->load(window));
        loaded.space->load(window);
    }
    const GroupUsage usage = loaded.record->usage();
    if (usage.used_blocks != expected.used_blocks || usage.free_rows != expected.free_rows ||
        usage.free_stripes != expected.free_stripes)
        return Err::kCorrupt;
    return loaded;
}

void SpaceGroup::install(Loaded loaded)
{
    {
        MutexLock lock(record_mutex_);
        record_ = std::move(loaded.record);
    }
    MutexLock lock(mutex_);
    space_ = std::move(loaded.space);
    load_state_ = LoadState::kLoaded;
    apply_early_frees();
    publish();
    loaded_changed_.notify_all();
}

// Frees that came while the group was not in memory. One that names a block which is not used (a crafted or
// damaged tree) is dropped: nothing depends on it.
void SpaceGroup::apply_early_frees()
{
    for (Delta& delta : deltas_) {
        size_t kept = 0;
        for (const BlockRange& range : delta.freed) {
            if (space_->end_life(range)) {
                delta.freed[kept++] = range;
                continue;
            }
            CW_LOG_ERROR("block group %llu: blocks freed that are not used",
                         static_cast<unsigned long long>(address_.value));
            live_blocks_ += range.count;
            pinned_blocks_ -= range.count;
        }
        delta.freed.resize(kept);
    }
}

uint64_t SpaceGroup::memory_bytes()
{
    uint64_t bytes = 0;
    {
        MutexLock lock(mutex_);
        if (space_ != nullptr)
            bytes = space_->memory_bytes();
    }
    MutexLock lock(record_mutex_);
    return record_ == nullptr ? bytes : bytes + record_->memory_bytes();
}

uint64_t SpaceGroup::evict()
{
    bool gone = false;
    {
        MutexLock lock(mutex_);
        if (load_state_ == LoadState::kLoaded && clean()) {
            load_state_ = LoadState::kChanging;
            space_.reset();
            gone = true;
        }
    }
    if (!gone)
        return memory_bytes();
    {
        MutexLock lock(record_mutex_);
        record_.reset();
    }
    MutexLock lock(mutex_);
    load_state_ = LoadState::kUnloaded;
    loaded_changed_.notify_all();
    return 0;
}

}  // namespace cowraid
