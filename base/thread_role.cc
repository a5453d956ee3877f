// SPDX-License-Identifier: MIT
#include "base/thread_role.h"

#ifdef COWRAID_DEBUG

namespace cowraid {

namespace {

// Its address tells threads apart.
thread_local char of_this_thread;

}  // namespace

void ThreadRole::begin()
{
    CW_ASSERT(thread_.exchange(&of_this_thread) == nullptr);
}

void ThreadRole::end()
{
    CW_ASSERT(thread_.exchange(nullptr) != nullptr);
}

bool ThreadRole::elsewhere() const
{
    const void* const thread = thread_.load(std::memory_order_relaxed);
    return thread != nullptr && thread != &of_this_thread;
}

}  // namespace cowraid

#endif
