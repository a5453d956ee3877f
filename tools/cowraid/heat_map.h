// SPDX-License-Identifier: MIT
// A picture of a volume: how full which stripes are, on which slots of which members.
#pragma once

#include <string>

#include "fs/layout.h"

namespace cowraid {

// An SVG document. Rows are members; along a row are its slots, darker where more of the stripes is in use;
// below are what the groups hold and, where it is known of any group, how long ago it was verified. `now`:
// seconds since 1970.
std::string draw_heat_map(const VolumeLayout& layout, uint64_t now);

}  // namespace cowraid
