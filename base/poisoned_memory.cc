// SPDX-License-Identifier: MIT
#include "base/poisoned_memory.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>

#if defined(__has_include)
#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#endif
#endif
#ifndef ASAN_POISON_MEMORY_REGION
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

#include "base/assert.h"
#include "base/mutex.h"

namespace cowraid {

namespace {

// 128 KiB, 256 KiB ... 2 MiB.
constexpr size_t kPoisonedClasses = 5;
constexpr size_t kSmallestPoisoned = kPoisonedBytesMax >> (kPoisonedClasses - 1);
constexpr size_t kGuardBytes = 4096;  // before and behind

size_t poisoned_class(size_t bytes)
{
    CW_ASSERT(bytes >= kPoisonedBytesMin && bytes <= kPoisonedBytesMax);
    size_t size_class = 0;
    while (kSmallestPoisoned << size_class < bytes)
        ++size_class;
    return size_class;
}

class PoisonedMemory {
public:
    std::byte* allocate(size_t bytes);
    void free(std::byte* memory, size_t bytes);

private:
    std::byte* oldest(size_t size_class);

    Mutex mutex_{LockRank::kMemory};
    // By class; what was freed first stands first.
    std::array<std::deque<std::byte*>, kPoisonedClasses> freed_ CW_GUARDED_BY(mutex_);
};

// Null: not enough was freed after it.
std::byte* PoisonedMemory::oldest(size_t size_class)
{
    MutexLock lock(mutex_);
    std::deque<std::byte*>& freed = freed_[size_class];
    if (freed.size() * (kSmallestPoisoned << size_class) <= kPoisonedKeptBytes)
        return nullptr;
    std::byte* const memory = freed.front();
    freed.pop_front();
    return memory;
}

std::byte* PoisonedMemory::allocate(size_t bytes)
{
    const size_t size_class = poisoned_class(bytes);
    const size_t slot_bytes = kSmallestPoisoned << size_class;
    std::byte* memory = oldest(size_class);
    if (memory == nullptr) {
        void* const fresh = std::aligned_alloc(kGuardBytes, slot_bytes + 2 * kGuardBytes);
        if (fresh == nullptr)
            return nullptr;
        ASAN_POISON_MEMORY_REGION(fresh, slot_bytes + 2 * kGuardBytes);
        memory = static_cast<std::byte*>(fresh) + kGuardBytes;
    }
    ASAN_UNPOISON_MEMORY_REGION(memory, bytes);
    // As the sanitizer does it: the begin is neither zeros nor what somebody else wrote.
    std::memset(memory, 0xbe, std::min(bytes, kGuardBytes));
    return memory;
}

void PoisonedMemory::free(std::byte* memory, size_t bytes)
{
    const size_t size_class = poisoned_class(bytes);
    ASAN_POISON_MEMORY_REGION(memory, kSmallestPoisoned << size_class);
    MutexLock lock(mutex_);
    freed_[size_class].push_back(memory);
}

PoisonedMemory& poisoned_memory()
{
    static auto* memory = new PoisonedMemory;  // never destroyed: buffers may outlive main()
    return *memory;
}

}  // namespace

std::byte* poisoned_allocate(size_t bytes)
{
    return poisoned_memory().allocate(bytes);
}

void poisoned_free(std::byte* memory, size_t bytes)
{
    poisoned_memory().free(memory, bytes);
}

void poison(const void* memory, size_t bytes)
{
    ASAN_POISON_MEMORY_REGION(memory, bytes);
}

void unpoison(const void* memory, size_t bytes)
{
    ASAN_UNPOISON_MEMORY_REGION(memory, bytes);
}

}  // namespace cowraid
