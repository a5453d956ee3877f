// SPDX-License-Identifier: MIT
// The threads of a mounted filesystem: one commits, one deletes unlinked inodes, one discards, others scrub
// and catch members up, and one looks after members that fail.
#pragma once

#include <array>

#include "base/mutex.h"
#include "base/thread.h"

namespace cowraid {

struct Committer;

class Background {
public:
    explicit Background(Committer& committer) : committer_(committer) { }
    ~Background() { stop(); }
    Background(const Background&) = delete;
    Background& operator=(const Background&) = delete;

    // kNoThread: there were not enough threads, and none is left.
    Status start();
    // Ends the threads; what is queued stays for the next mount. Idempotent.
    void stop();

private:
    Status start_threads();
    static void* commit_main(void* self);
    static void* removal_main(void* self);
    static void* discard_main(void* self);
    static void* scrub_main(void* self);
    static void* catch_up_main(void* self);
    static void* health_main(void* self);
    static void* replace_main(void* self);
    static void* copy_main(void* self);

    Committer& committer_;
    Thread commit_thread_, removal_thread_, discard_thread_;
    std::array<Thread, 2> scrub_threads_, catch_up_threads_;  // one reads while the other verifies
    Thread health_thread_;
    Mutex stop_mutex_{LockRank::kLeaf};
    CondVar stop_;
    bool stopping_ CW_GUARDED_BY(stop_mutex_) = false;
    Thread replace_thread_, copy_thread_;  // the second one only copies
    bool running_ = false;
};

}  // namespace cowraid
