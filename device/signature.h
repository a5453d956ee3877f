// SPDX-License-Identifier: MIT
// What else is on a device: filesystems, RAID members and partition tables, our own included.
#pragma once

#include <string>

#include "base/status.h"

namespace cowraid {

inline constexpr const char* kMemberSignature = "cowraid";

// Names what `fd` holds, such as "btrfs", "ext4" or "gpt partition table"; several are joined by ", ", and a
// member of a cowraid volume is "cowraid". Empty: nothing known. Reads through a second, buffered open of
// the same file. kIo when that fails.
Result<std::string> probe_signature(int fd);

// The same for the first MiB, where a member has nothing but superblocks, and without "cowraid": what
// somebody made of a member who did not know it, and may have left superblocks of it further behind.
Result<std::string> probe_head(int fd);

// Overwrites every signature that probe_signature() names, so that nobody takes the device for what it was
// before. `fd` must be writable. kIo when a signature cannot be overwritten.
Status wipe_signatures(int fd);

}  // namespace cowraid
