// SPDX-License-Identifier: MIT
// The options that a mount goes by, as -o takes them.
#pragma once

#include <string>

#include "fs/filesystem.h"

namespace cowraid {

// All of them, those that nobody gave included: parsed again they say the same. What the kernel alone acts
// on, such as nosuid, is in its mount table.
std::string mount_options_text(const MountOptions& options);
// Of a mounted volume, as it is now: `ro` when nothing can be written, `degraded` while members are out of
// service.
std::string effective_options(Filesystem& filesystem);

}  // namespace cowraid
