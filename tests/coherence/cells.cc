// SPDX-License-Identifier: MIT
#include "tests/coherence/cells.h"

#include <algorithm>
#include <cstdio>
#include <vector>

namespace cowraid::test {

namespace {

constexpr uint32_t kVersionBits = 40;
constexpr uint64_t kVersionMask = (uint64_t{1} << kVersionBits) - 1;
constexpr uint32_t kMixedCells = 4;

}  // namespace

const char* way_name(Way way)
{
    constexpr const char* kNames[] = {"buffered", "mapped", "direct", "write-only", "aio"};
    return kNames[static_cast<size_t>(way)];
}

Cells::Cells(std::span<const Way> writers)
{
    std::vector<Way> mixed(writers.begin(), writers.end());
    std::erase(mixed, Way::kMapped);
    if (mixed.empty())
        mixed.push_back(Way::kMapped);
    const uint32_t half = kCellCount / 2;
    const uint32_t range = half / static_cast<uint32_t>(writers.size()) / kPageCells * kPageCells;
    for (uint32_t cell = 0; cell < kCellCount; ++cell)
        owners_[cell] = cell < half ? writers[std::min<size_t>(cell / range, writers.size() - 1)]
                                    : mixed[cell / kMixedCells % mixed.size()];
}

Run Cells::run_of(Way way, uint32_t cell, uint32_t count_max) const
{
    Run run{cell, 0};
    while (run.count < count_max && cell + run.count < kCellCount && owners_[cell + run.count] == way)
        ++run.count;
    return run;
}

void Cells::begin_write(Run run, std::span<std::byte> data)
{
    for (uint32_t i = 0; i < run.count; ++i) {
        const uint32_t cell = run.first + i;
        const uint64_t version = started_[cell].load(std::memory_order_relaxed) + 1;
        started_[cell].store(version, std::memory_order_release);
        const uint64_t word = (uint64_t{cell} << kVersionBits) | version;
        for (uint32_t w = 0; w < kCellWords; ++w)
            std::memcpy(data.data() + i * kCellBytes + w * sizeof word, &word, sizeof word);
    }
}

void Cells::end_write(Run run)
{
    for (uint32_t cell = run.first; cell < run.first + run.count; ++cell)
        acknowledged_[cell].store(started_[cell].load(std::memory_order_relaxed), std::memory_order_release);
}

void Cells::begin_read(Run run, std::span<uint64_t> oldest) const
{
    for (uint32_t i = 0; i < run.count; ++i)
        oldest[i] = acknowledged_[run.first + i].load(std::memory_order_acquire);
}

uint64_t Cells::check_read(Run run, std::span<const std::byte> data, std::span<const uint64_t> oldest,
                           Way reader)
{
    uint64_t wrong = 0;
    for (uint32_t i = 0; i < run.count; ++i) {
        const uint32_t cell = run.first + i;
        const uint64_t newest = started_[cell].load(std::memory_order_acquire);
        uint64_t low = UINT64_MAX, high = 0;
        for (uint32_t w = 0; w < kCellWords; ++w) {
            uint64_t word;
            std::memcpy(&word, data.data() + i * kCellBytes + w * sizeof word, sizeof word);
            const bool other = word != 0 && word >> kVersionBits != cell;
            low = std::min(low, other ? 0 : word & kVersionMask);
            high = std::max(high, other ? UINT64_MAX : word & kVersionMask);
        }
        checked_[static_cast<size_t>(owners_[cell])].fetch_add(1, std::memory_order_relaxed);
        if (low >= oldest[i] && high <= newest)
            continue;
        ++wrong;
        if (!printed_[static_cast<size_t>(reader)][static_cast<size_t>(owners_[cell])].exchange(true))
            printf("%s reader, %s writer: cell %u holds versions %lu to %lu, acknowledged %lu, begun %lu\n",
                   way_name(reader), way_name(owners_[cell]), cell, low, high, oldest[i], newest);
    }
    return wrong;
}

}  // namespace cowraid::test
