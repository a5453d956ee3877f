// SPDX-License-Identifier: MIT
// A file of cells, each 512 bytes of one number: which cell it is and how often it was written. Every cell
// has one writer, so a reader knows what it must not see any more and what it cannot see yet.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>

namespace cowraid::test {

enum class Way : uint8_t { kBuffered, kMapped, kDirect, kWriteOnly, kAio };
inline constexpr std::array kWriterWays{Way::kBuffered, Way::kMapped, Way::kDirect, Way::kWriteOnly,
                                        Way::kAio};
inline constexpr std::array kReaderWays{Way::kBuffered, Way::kMapped, Way::kDirect, Way::kAio};
const char* way_name(Way way);

inline constexpr uint32_t kCellBytes = 512;
inline constexpr uint32_t kCellWords = kCellBytes / sizeof(uint64_t);
inline constexpr uint32_t kPageCells = 4096 / kCellBytes;
inline constexpr uint32_t kRunCellsMax = 128;
inline constexpr uint32_t kCellCount = 2048;
inline constexpr uint64_t kFileBytes = uint64_t{kCellCount} * kCellBytes;

struct Run {
    uint32_t first = 0;
    uint32_t count = 0;
    [[nodiscard]] uint64_t offset() const { return uint64_t{first} * kCellBytes; }
    [[nodiscard]] uint64_t bytes() const { return uint64_t{count} * kCellBytes; }
};

// What was asked for and what was acknowledged, per cell; the writers' and the readers' common knowledge.
class Cells {
public:
    // The first half of the file has a range per writer. The second one has pages with cells of several
    // writers, all but the one that maps: it stores whole pages.
    explicit Cells(std::span<const Way> writers);

    [[nodiscard]] Way owner(uint32_t cell) const { return owners_[cell]; }
    // The cells of `way` from `cell` on, at most `count_max`.
    [[nodiscard]] Run run_of(Way way, uint32_t cell, uint32_t count_max) const;

    // A new version for every cell of the run, filled into `data`; then what it says is under way.
    void begin_write(Run run, std::span<std::byte> data);
    // The write was acknowledged.
    void end_write(Run run);

    // Before a read: the versions that it must not fall below.
    void begin_read(Run run, std::span<uint64_t> oldest) const;
    // Checks what was read. Returns how many cells are wrong; prints the first one of each pair of ways.
    uint64_t check_read(Run run, std::span<const std::byte> data, std::span<const uint64_t> oldest,
                        Way reader);

    [[nodiscard]] uint64_t checked_count(Way writer) const
    {
        return checked_[static_cast<size_t>(writer)].load();
    }

private:
    std::array<Way, kCellCount> owners_{};
    std::array<std::atomic<uint64_t>, kCellCount> started_{};
    std::array<std::atomic<uint64_t>, kCellCount> acknowledged_{};
    std::array<std::atomic<uint64_t>, kWriterWays.size()> checked_{};  // by writer
    std::array<std::array<std::atomic<bool>, kWriterWays.size()>, kWriterWays.size()> printed_{};
};

}  // namespace cowraid::test
