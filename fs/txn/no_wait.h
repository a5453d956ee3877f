// SPDX-License-Identifier: MIT
// Threads that serve requests must not wait for a commit, a flush or room: some of them waiting would keep
// all other requests waiting. An operation that would have to wait fails in such a thread with kWouldWait,
// has changed nothing, and is done again by a thread that may wait. As RWF_NOWAIT and the workers of
// io_uring.
#pragma once

namespace cowraid {

// While it lives the calling thread may not wait. May be nested.
class NoWait {
public:
    NoWait() : outer_(active_) { active_ = true; }
    ~NoWait() { active_ = outer_; }
    NoWait(const NoWait&) = delete;
    NoWait& operator=(const NoWait&) = delete;

    [[nodiscard]] static bool active() { return active_; }

private:
    static inline thread_local bool active_ = false;
    const bool outer_;
};

}  // namespace cowraid
