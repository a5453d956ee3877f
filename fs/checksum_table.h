// SPDX-License-Identifier: MIT
// Checksums of the blocks one transaction wrote, by volume address, in windows like those on disk.
#pragma once

#include <array>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/units.h"
#include "format/items.h"

namespace cowraid {

struct ChecksumWindow {
    uint64_t mask = 0;  // bit i: checksums[i] is set
    std::array<Checksum, kChecksumWindowBlocks> checksums{};
};

class ChecksumTable {
public:
    // Checksums of consecutive blocks.
    void put(VolumeAddress address, std::span<const Checksum> checksums);
    // Fills the checksums this table knows of the window that starts at `window_address`, where `into` does
    // not know them yet.
    void merge_into(VolumeAddress window_address, ChecksumWindow& into) const;

    struct Entry {
        VolumeAddress window_address;
        ChecksumWindow window;
    };
    // Everything by rising address. Only for a table that no longer changes.
    [[nodiscard]] std::vector<Entry> sorted() const;

private:
    static constexpr size_t kShardCount = 64;
    struct Shard {
        mutable Mutex mutex{LockRank::kChecksumTable};
        std::unordered_map<uint64_t, ChecksumWindow> windows CW_GUARDED_BY(mutex);
    };
    [[nodiscard]] Shard& shard_of(uint64_t window_address) const;

    mutable std::array<Shard, kShardCount> shards_;
};

// The on-disk payload of a window, and back. Decoding validates length and mask.
std::vector<std::byte> encode_checksum_window(const ChecksumWindow& window);
bool decode_checksum_window(std::span<const std::byte> payload, ChecksumWindow& out);

}  // namespace cowraid
