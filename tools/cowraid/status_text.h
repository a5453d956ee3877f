// SPDX-License-Identifier: MIT
// How a mounted volume is, in lines.
#pragma once

#include <string>

#include "base/text.h"
#include "control/volume_status.h"

namespace cowraid {

// What `cowraid status` shows, ended by an empty line.
std::string status_text(const VolumeStatus& status, SizeStyle sizes);

}  // namespace cowraid
