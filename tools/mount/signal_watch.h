// SPDX-License-Identifier: MIT
// SIGTERM and SIGINT as calls on a thread of their own.
#pragma once

#include "base/thread.h"
#include "base/unique_fd.h"

namespace cowraid {

// Blocks the watched signals in this thread and those it starts. Before any thread that shall not get them.
void block_watched_signals();
// From now on they end the program, with success.
void end_by_watched_signals();

class SignalWatch {
public:
    using Handler = void (*)(void* context, int number);

    SignalWatch();
    // Calls `handler` for the first watched signal, on its own thread; later ones are swallowed. kNoThread:
    // there was no thread.
    Status start(Handler handler, void* context);
    // Waits for a running handler.
    ~SignalWatch();
    SignalWatch(const SignalWatch&) = delete;
    SignalWatch& operator=(const SignalWatch&) = delete;

private:
    void run(Handler handler, void* context);

    UniqueFd signals_;
    UniqueFd stop_event_;
    Thread thread_;
};

}  // namespace cowraid
