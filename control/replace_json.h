// SPDX-License-Identifier: MIT
// ReplaceStatus as JSON and back.
#pragma once

#include "control/json.h"
#include "fs/commit/replace.h"

namespace cowraid {

Json encode_replace(const ReplaceStatus& status);
// kInvalid when it is not such an object.
Result<ReplaceStatus> decode_replace(const json_t* object);

}  // namespace cowraid
