// SPDX-License-Identifier: MIT
// One number for each of many blocks, by volume address: what one transaction says of checksums and of moved
// blocks. Kept in windows like those on disk, so that what it does not say can be filled in from older
// layers.
#pragma once

#include <array>
#include <atomic>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/units.h"
#include "format/window_codec.h"

namespace cowraid {

// Thread-safe.
class BlockTable {
public:
    // Numbers of consecutive blocks; they replace what the table has of them.
    void put(VolumeAddress address, std::span<const uint64_t> values);
    // Fills in what this table knows of the window that starts at `window_address`, where `into` does not
    // know it yet.
    void merge_into(VolumeAddress window_address, BlockWindow& into) const;

    // Whether it has a number of a block in [first, end). Looks at all windows.
    [[nodiscard]] bool any_in(VolumeAddress first, VolumeAddress end) const;

    struct Entry {
        VolumeAddress window_address;
        BlockWindow window;
    };
    // Everything by rising address. Only for a table that no longer changes.
    [[nodiscard]] std::vector<Entry> sorted() const;
    [[nodiscard]] uint64_t window_count() const { return window_count_.load(std::memory_order_relaxed); }

private:
    static constexpr size_t kShardCount = 64;
    struct Shard {
        mutable Mutex mutex{LockRank::kBlockTable};
        std::unordered_map<uint64_t, BlockWindow> windows CW_GUARDED_BY(mutex);
    };
    [[nodiscard]] Shard& shard_of(uint64_t window_address) const;

    mutable std::array<Shard, kShardCount> shards_;
    std::atomic<uint64_t> window_count_{0};
};

}  // namespace cowraid
