// SPDX-License-Identifier: MIT
// The options that a mount goes by, as -o takes them.
#pragma once

#include <string>

#include "fs/filesystem.h"

namespace cowraid {

// All of them, those that nobody gave included: parsed again they say the same. What the kernel alone acts
// on, such as nosuid, is in its mount table.
std::string mount_options_text(const MountOptions& options);
// Those of a mounted volume, as they are now.
MountOptions current_options(Filesystem& filesystem);
// Of a mounted volume, as it is now: `ro` when nothing can be written, `degraded` while members are out of
// service.
std::string effective_options(Filesystem& filesystem);
// A remount: the mounted volume goes by those of `wanted` that can be changed while it is mounted, but for
// `read_only`. The others that differ, as -o takes them; empty: there are none. Errors of
// Array::set_partial_write_options().
Result<std::string> change_options(Filesystem& filesystem, const MountOptions& wanted);

}  // namespace cowraid
