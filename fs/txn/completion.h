// SPDX-License-Identifier: MIT
#pragma once

#include "base/status.h"

namespace cowraid {

// Answers later, from any thread: fsync and sync wait for a commit without holding a thread.
class Completion {
public:
    virtual ~Completion() = default;
    // Called exactly once; the object is the caller's and may delete itself.
    virtual void done(Status status) = 0;
};

}  // namespace cowraid
