// SPDX-License-Identifier: MIT
// How a volume is named on a command line or in fstab.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace cowraid {

struct VolumeSpec {
    std::vector<std::string> paths;  // members, as typed
    std::string name;  // when there are no paths: "UUID=..." or "LABEL=..."
};

// One operand means a path (anything with a slash, or an existing device or file), several paths joined by
// colons, "cowraid:LABEL", "cowraid:UUID", "LABEL=", "UUID=", a label or a uuid. Several operands are paths.
// On kInvalid `why` holds one line.
Result<VolumeSpec> parse_volume_spec(const std::vector<std::string>& operands, std::string& why);

}  // namespace cowraid
