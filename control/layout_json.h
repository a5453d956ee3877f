// SPDX-License-Identifier: MIT
// VolumeLayout as JSON and back.
#pragma once

#include "control/json.h"
#include "fs/layout.h"

namespace cowraid {

Json encode_layout(const VolumeLayout& layout);
// kInvalid when it is not such an object.
Result<VolumeLayout> decode_layout(const json_t* object);

}  // namespace cowraid
