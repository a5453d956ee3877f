// SPDX-License-Identifier: MIT
// What one thread at a time may touch, without a lock: a capability for clang's thread-safety analysis. Debug
// builds check which thread it is.
#pragma once

#include <atomic>

#include "base/assert.h"
#include "base/thread_annotations.h"

namespace cowraid {

class CW_CAPABILITY("role") ThreadRole {
public:
    ThreadRole() = default;
    ThreadRole(const ThreadRole&) = delete;
    ThreadRole& operator=(const ThreadRole&) = delete;

    // The calling thread has the role, and nobody else until end().
    void begin();
    // That thread has ended. Whoever calls has seen to it that others keep away, as before begin().
    void end();

    // Another thread has it. False where nothing is checked: in builds without debug checks.
    [[nodiscard]] bool elsewhere() const;
    // For the first line of a function that only the role may call. Debug builds abort when another thread
    // has it. While none has, everybody may: then there is one thread, or callers take turns.
    void assert_here() const CW_ASSERT_HELD(this) { CW_DEBUG_ASSERT(!elsewhere()); }
    // For who reads what the role changes only under a lock, and holds that lock.
    void assert_still() const CW_ASSERT_HELD_SHARED(this) { }

private:
#ifdef COWRAID_DEBUG
    std::atomic<const void*> thread_{nullptr};  // something of the thread that has it
#endif
};

#ifndef COWRAID_DEBUG
inline void ThreadRole::begin() { }
inline void ThreadRole::end() { }
inline bool ThreadRole::elsewhere() const
{
    return false;
}
#endif

}  // namespace cowraid
