// SPDX-License-Identifier: MIT
// A change of one file that takes as many operations as the file has extents.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "base/units.h"

namespace cowraid {

// Of work that takes several operations.
enum class Progress : uint8_t { kMore, kDone };

class LongChange {
public:
    LongChange() = default;
    virtual ~LongChange() = default;
    LongChange(const LongChange&) = delete;
    LongChange& operator=(const LongChange&) = delete;

    // The next of its operations. An error is the end of the change: what was done before stays, and the file
    // is as whole as before. So is it when nobody calls step() again. After kWouldWait it goes on in a thread
    // that may wait. One thread at a time, no locks held.
    virtual Result<Progress> step() = 0;
};

// All steps, in the caller's thread.
inline Status finish_change(LongChange& change)
{
    while (true) {
        CW_ASSIGN(const Progress progress, change.step());
        if (progress == Progress::kDone)
            return {};
    }
}

}  // namespace cowraid
