// SPDX-License-Identifier: MIT
// ScrubStatus as JSON and back.
#pragma once

#include "control/json.h"
#include "fs/maintain/scrub.h"

namespace cowraid {

Json encode_scrub(const ScrubStatus& status);
// kInvalid when it is not such an object.
Result<ScrubStatus> decode_scrub(const json_t* object);

}  // namespace cowraid
