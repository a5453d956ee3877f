// SPDX-License-Identifier: MIT
// Volumes in numbers, in the text format of Prometheus (version 0.0.4).
#pragma once

#include <string>
#include <vector>

#include "control/volume_status.h"

namespace cowraid {

// A mounted volume whose daemon did not say how it is.
struct UnansweredVolume {
    std::string uuid;  // empty: nobody knows which it serves
    int pid = 0;  // 0: not known
};

// Ends in a newline; each metric has its HELP and TYPE once, and the samples of all volumes behind them.
std::string metrics_text(const std::vector<VolumeStatus>& volumes,
                         const std::vector<UnansweredVolume>& unanswered = {});

}  // namespace cowraid
