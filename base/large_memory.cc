// SPDX-License-Identifier: MIT
#include "base/large_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/assert.h"
#include "base/mutex.h"
#include "base/units.h"

namespace cowraid {

namespace {

// One huge page, aligned to its size, cut into slots of one size class.
constexpr size_t kRegionBytes = 2 * 1024 * 1024;
// Slots of 128 KiB, 256 KiB, 512 KiB and 1 MiB.
constexpr size_t kClassCount = 4;
constexpr size_t kSmallestSlot = kLargeBytesMax >> (kClassCount - 1);

size_t slot_bytes(size_t size_class)
{
    return kSmallestSlot << size_class;
}

size_t class_of(size_t bytes)
{
    CW_ASSERT(bytes >= kLargeBytesMin && bytes <= kLargeBytesMax);
    size_t size_class = 0;
    while (slot_bytes(size_class) < bytes)
        ++size_class;
    return size_class;
}

uint16_t all_slots(size_t size_class)
{
    return static_cast<uint16_t>((1u << (kRegionBytes / slot_bytes(size_class))) - 1);
}

std::atomic<size_t> bytes_mapped{0};

size_t mapped_bytes(size_t bytes)
{
    return round_up(bytes, kRegionBytes);
}

class LargeMemory {
public:
    std::byte* allocate(size_t size_class);
    void free(std::byte* memory);
    void trim();

private:
    struct Region {
        size_t size_class;
        uint16_t free_slots;  // one bit each
    };
    using Regions = std::unordered_map<uintptr_t, Region>;  // by address

    std::byte* region_for(size_t size_class) CW_REQUIRES(mutex_);

    Mutex mutex_{LockRank::kMemory};
    Regions regions_ CW_GUARDED_BY(mutex_);  // that have slots in use
    // Addresses of regions with free slots and slots in use, by class; the last is used first.
    std::array<std::vector<std::byte*>, kClassCount> partial_ CW_GUARDED_BY(mutex_);
    std::vector<std::byte*> empty_ CW_GUARDED_BY(mutex_);  // wholly free, of no class
    size_t spare_ CW_GUARDED_BY(mutex_) = 0;  // fewest empty regions since the last trim
};

std::byte* LargeMemory::region_for(size_t size_class)
{
    if (!partial_[size_class].empty())
        return partial_[size_class].back();
    std::byte* region;
    if (empty_.empty()) {
        region = map_huge(kRegionBytes);
        if (region == nullptr)
            return nullptr;
    } else {
        region = empty_.back();
        empty_.pop_back();
        spare_ = std::min(spare_, empty_.size());
    }
    regions_[reinterpret_cast<uintptr_t>(region)] = {size_class, all_slots(size_class)};
    partial_[size_class].push_back(region);
    return region;
}

std::byte* LargeMemory::allocate(size_t size_class)
{
    MutexLock lock(mutex_);
    std::byte* address = region_for(size_class);
    if (address == nullptr)
        return nullptr;
    Region& region = regions_.at(reinterpret_cast<uintptr_t>(address));
    const auto slot = static_cast<size_t>(__builtin_ctz(region.free_slots));
    region.free_slots = static_cast<uint16_t>(region.free_slots & (region.free_slots - 1));
    if (region.free_slots == 0)
        partial_[size_class].pop_back();
    return address + slot * slot_bytes(size_class);
}

void LargeMemory::free(std::byte* memory)
{
    const uintptr_t offset = reinterpret_cast<uintptr_t>(memory) % kRegionBytes;
    std::byte* const address = memory - offset;
    MutexLock lock(mutex_);
    const auto found = regions_.find(reinterpret_cast<uintptr_t>(address));
    CW_ASSERT(found != regions_.end());
    Region& region = found->second;
    const auto bit = static_cast<uint16_t>(1u << (offset / slot_bytes(region.size_class)));
    CW_ASSERT((region.free_slots & bit) == 0);
    std::vector<std::byte*>& partial = partial_[region.size_class];
    if (region.free_slots == 0)
        partial.push_back(address);
    region.free_slots |= bit;
    if (region.free_slots != all_slots(region.size_class))
        return;
    partial.erase(std::find(partial.begin(), partial.end(), address));
    regions_.erase(found);
    empty_.push_back(address);
}

void LargeMemory::trim()
{
    std::vector<std::byte*> given_back;
    {
        MutexLock lock(mutex_);
        // The ones that were empty longest stand first.
        const auto end = empty_.begin() + static_cast<std::ptrdiff_t>(spare_);
        given_back.assign(empty_.begin(), end);
        empty_.erase(empty_.begin(), end);
        spare_ = empty_.size();
    }
    for (std::byte* region : given_back)
        unmap_huge(region, kRegionBytes);
}

LargeMemory& large_memory()
{
    static auto* memory = new LargeMemory;  // never destroyed: buffers may outlive main()
    return *memory;
}

}  // namespace

std::byte* map_huge(size_t bytes)
{
    const size_t size = mapped_bytes(bytes);
    // That much more has an aligned part of the size in it; the rest goes back.
    void* mapped =
        mmap(nullptr, size + kRegionBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED)
        return nullptr;
    auto* begin = static_cast<std::byte*>(mapped);
    const size_t before = -reinterpret_cast<uintptr_t>(begin) % kRegionBytes;
    if (before > 0)
        munmap(begin, before);
    munmap(begin + before + size, kRegionBytes - before);
    // Without huge pages it works as well.
    madvise(begin + before, size, MADV_HUGEPAGE);
    bytes_mapped.fetch_add(size, std::memory_order_relaxed);
    return begin + before;
}

void unmap_huge(std::byte* memory, size_t bytes)
{
    munmap(memory, mapped_bytes(bytes));
    bytes_mapped.fetch_sub(mapped_bytes(bytes), std::memory_order_relaxed);
}

std::byte* large_allocate(size_t bytes)
{
    return large_memory().allocate(class_of(bytes));
}

void large_free(std::byte* memory, size_t bytes)
{
    CW_ASSERT(bytes >= kLargeBytesMin && bytes <= kLargeBytesMax);
    large_memory().free(memory);
}

void large_trim()
{
    large_memory().trim();
}

size_t large_bytes_held()
{
    return bytes_mapped.load(std::memory_order_relaxed);
}

}  // namespace cowraid
