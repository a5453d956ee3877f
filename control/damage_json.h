// SPDX-License-Identifier: MIT
#pragma once

#include "control/json.h"
#include "fs/maintain/damaged_files.h"

namespace cowraid {

// Files that are asked for at a time.
inline constexpr size_t kDamagedFilesMax = 1000;

// Damaged files as the control socket carries them and --json prints them. file_count counts all.
Json encode_damage(const DamagedFiles& damage);
// kInvalid when it is not such an object.
Result<DamagedFiles> decode_damage(const json_t* object);

}  // namespace cowraid
