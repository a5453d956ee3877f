// SPDX-License-Identifier: MIT
#pragma once

#include "control/json.h"
#include "fs/maintain/damaged_files.h"

namespace cowraid {

// Files that the daemon names at a time.
inline constexpr size_t kDamagedFilesMax = 5000;
// Of the request "damage": only files of higher inodes.
inline constexpr const char* kDamageAfter = "after_inode";

// Damaged files as the control socket carries them and --json prints them. file_count counts all.
Json encode_damage(const DamagedFiles& damage);
// kInvalid when it is not such an object.
Result<DamagedFiles> decode_damage(const json_t* object);

}  // namespace cowraid
