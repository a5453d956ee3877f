// SPDX-License-Identifier: MIT
// How a mounted volume is, in lines.
#pragma once

#include <string>

#include "base/text.h"
#include "control/volume_status.h"

namespace cowraid {

// A line for each member and spare: its state, and the errors that were met on it.
std::string member_table(const VolumeStatus& status, SizeStyle sizes);
// What `cowraid status` shows, ended by an empty line.
std::string status_text(const VolumeStatus& status, SizeStyle sizes);

}  // namespace cowraid
