// SPDX-License-Identifier: MIT
// The numbers that must never be mixed up, each its own type (design section 2).
#pragma once

#include <compare>
#include <cstdint>

namespace cowraid {

inline constexpr uint64_t kKiB = 1024;
inline constexpr uint64_t kMiB = 1024 * kKiB;
inline constexpr uint64_t kGiB = 1024 * kMiB;
inline constexpr uint64_t kTiB = 1024 * kGiB;

// Unit of allocation and of checksums.
inline constexpr uint32_t kBlockBytes = 4096;
// Size of one tree node; a whole number of blocks.
inline constexpr uint32_t kNodeBytes = 16384;
inline constexpr uint32_t kNodeBlocks = kNodeBytes / kBlockBytes;

// Address after RAID mapping, in bytes. 0 is never a valid block.
struct VolumeAddress {
    uint64_t value = 0;

    [[nodiscard]] constexpr bool valid() const { return value != 0; }
    friend constexpr auto operator<=>(VolumeAddress, VolumeAddress) = default;
    friend constexpr VolumeAddress operator+(VolumeAddress a, uint64_t bytes) { return {a.value + bytes}; }
    friend constexpr uint64_t operator-(VolumeAddress a, VolumeAddress b) { return a.value - b.value; }
};

// Byte offset on one member.
struct DeviceOffset {
    uint64_t value = 0;

    friend constexpr auto operator<=>(DeviceOffset, DeviceOffset) = default;
    friend constexpr DeviceOffset operator+(DeviceOffset a, uint64_t bytes) { return {a.value + bytes}; }
};

// Number of a commit. The first commit, written by mkfs, is 1.
struct Generation {
    uint64_t value = 0;

    friend constexpr auto operator<=>(Generation, Generation) = default;
    [[nodiscard]] constexpr Generation next() const { return {value + 1}; }
};

// Identity of a member inside its volume; from 1, never reused.
struct MemberId {
    uint32_t value = 0;

    friend constexpr auto operator<=>(MemberId, MemberId) = default;
};

// Inode number, below 2^42, never reused. The root directory is 256.
struct InodeNumber {
    uint64_t value = 0;

    friend constexpr auto operator<=>(InodeNumber, InodeNumber) = default;
};

// xxh3-64 of a block, node or structure.
using Checksum = uint64_t;

constexpr uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

constexpr uint64_t round_down(uint64_t value, uint64_t unit)
{
    return value / unit * unit;
}

constexpr uint64_t divide_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit;
}

constexpr bool is_power_of_two(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

}  // namespace cowraid
