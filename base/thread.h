// SPDX-License-Identifier: MIT
// Threads that the system may refuse: std::thread would end the program then.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "base/assert.h"
#include "base/status.h"

namespace cowraid {

// For tests: the next `count` threads start, then none does until it is called with kThreadsUnlimited.
inline constexpr uint32_t kThreadsUnlimited = UINT32_MAX;
void limit_threads(uint32_t count);

class Thread {
public:
    Thread() = default;
    ~Thread() { CW_ASSERT(!started_); }
    Thread(const Thread&) = delete;
    Thread& operator=(const Thread&) = delete;

    // Calls main(argument) on a thread of its own. kNoThread: the system has none to give.
    Status start(void* (*main)(void*), void* argument);
    // The same with what can be called.
    template <typename Work> Status start(Work work)
    {
        auto kept = std::make_unique<Work>(std::move(work));
        const Status started = start(
            [](void* argument) -> void* {
                (*std::unique_ptr<Work>(static_cast<Work*>(argument)))();
                return nullptr;
            },
            kept.get());
        if (started.ok())
            (void)kept.release();  // the thread's now
        return started;
    }
    [[nodiscard]] bool started() const { return started_; }
    // Returns when it has ended; at once where none was started.
    void join();

private:
    pthread_t thread_{};
    bool started_ = false;
};

}  // namespace cowraid
