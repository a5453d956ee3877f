// SPDX-License-Identifier: MIT
// The thread that looks every second what happened to the volume.
#pragma once

#include "base/mutex.h"
#include "base/thread.h"
#include "tools/mount/daemon_commands.h"

namespace cowraid {

class EventWatch {
public:
    // `commands` must outlive the object.
    explicit EventWatch(VolumeControl& commands) : commands_(commands) { }
    // Once. kNoThread: there was no thread.
    Status start();
    // Looks a last time.
    ~EventWatch();
    EventWatch(const EventWatch&) = delete;
    EventWatch& operator=(const EventWatch&) = delete;

private:
    void run();

    VolumeControl& commands_;
    Mutex mutex_{LockRank::kLeaf};
    CondVar changed_;
    bool stopping_ CW_GUARDED_BY(mutex_) = false;
    Thread thread_;  // last: it uses everything above
};

}  // namespace cowraid
