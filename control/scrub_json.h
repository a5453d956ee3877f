// SPDX-License-Identifier: MIT
// ScrubStatus as JSON and back.
#pragma once

#include "control/json.h"
#include "fs/maintain/scrub.h"

namespace cowraid {

Json encode_scrub(const ScrubStatus& status);
// Adds what scripts for btrfs look for: "fsid", "health", "running", "scrub_session" with the figures of this
// scrub, "scrub_lifetime" with those of the members' counters, and both for each device. `volume`: as
// "cowraid.status", with "health".
void add_scrub_sessions(const ScrubStatus& status, const json_t* volume, json_t* out);
// kInvalid when it is not such an object.
Result<ScrubStatus> decode_scrub(const json_t* object);

}  // namespace cowraid
