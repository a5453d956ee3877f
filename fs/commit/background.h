// SPDX-License-Identifier: MIT
// The threads of a mounted filesystem: one commits, one deletes unlinked inodes, one discards, others scrub
// and catch members up, and one looks after members that fail.
#pragma once

#include <pthread.h>

#include <array>

#include "base/mutex.h"

namespace cowraid {

struct Committer;

class Background {
public:
    explicit Background(Committer& committer) : committer_(committer) { }
    ~Background() { stop(); }
    Background(const Background&) = delete;
    Background& operator=(const Background&) = delete;

    void start();
    // Ends the threads; what is queued stays for the next mount. Idempotent.
    void stop();

private:
    static void* commit_main(void* self);
    static void* removal_main(void* self);
    static void* discard_main(void* self);
    static void* scrub_main(void* self);
    static void* catch_up_main(void* self);
    static void* health_main(void* self);
    static void* replace_main(void* self);
    static void* copy_main(void* self);

    Committer& committer_;
    pthread_t commit_thread_{};
    pthread_t removal_thread_{}, discard_thread_{};
    std::array<pthread_t, 2> scrub_threads_{}, catch_up_threads_{};  // one reads while the other verifies
    pthread_t health_thread_{};
    Mutex stop_mutex_{LockRank::kLeaf};
    CondVar stop_;
    bool stopping_ CW_GUARDED_BY(stop_mutex_) = false;
    pthread_t replace_thread_{}, copy_thread_{};  // the second one only copies
    bool running_ = false;
};

}  // namespace cowraid
