// SPDX-License-Identifier: MIT
#include "sim/page_table.h"

#include <cstdlib>
#include <vector>

#include "base/assert.h"
#include "base/mutex.h"
#include "base/out_of_memory.h"
#include "base/poisoned_memory.h"

namespace cowraid {

namespace {

// Memory of pages that were freed, poison until it is used again.
class PagePool {
public:
    void* take();
    void give(void* memory);

private:
    static constexpr size_t kPagesAtOnce = 64;

    Mutex mutex_{LockRank::kMemory};
    std::vector<void*> free_ CW_GUARDED_BY(mutex_);
};

void* PagePool::take()
{
    MutexLock lock(mutex_);
    if (free_.empty()) {
        void* const more = std::aligned_alloc(alignof(SimPage), kPagesAtOnce * sizeof(SimPage));
        if (more == nullptr)
            out_of_memory();
        poison(more, kPagesAtOnce * sizeof(SimPage));
        for (size_t page = kPagesAtOnce; page-- > 0;)
            free_.push_back(static_cast<std::byte*>(more) + page * sizeof(SimPage));
    }
    void* const memory = free_.back();
    free_.pop_back();
    unpoison(memory, sizeof(SimPage));
    return memory;
}

void PagePool::give(void* memory)
{
    poison(memory, sizeof(SimPage));
    MutexLock lock(mutex_);
    free_.push_back(memory);
}

PagePool& page_pool()
{
    static auto* pool = new PagePool;  // never destroyed: devices may outlive main()
    return *pool;
}

}  // namespace

void* SimPage::operator new(size_t bytes)
{
    CW_ASSERT(bytes == sizeof(SimPage));
    return page_pool().take();
}

void SimPage::operator delete(void* memory)
{
    page_pool().give(memory);
}

}  // namespace cowraid
