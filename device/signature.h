// SPDX-License-Identifier: MIT
// What else is on a device: filesystems, RAID members and partition tables, our own included.
#pragma once

#include <string>

#include "base/status.h"
#include "base/unique_fd.h"
#include "device/block_device.h"

namespace cowraid {

inline constexpr const char* kMemberSignature = "cowraid";

// Names what `fd` holds, such as "btrfs", "ext4" or "gpt partition table"; several are joined by ", ", and a
// member of a cowraid volume is "cowraid". Empty: nothing known. Reads through a second, buffered open of
// the same file. kIo when that fails.
Result<std::string> probe_signature(int fd);

// A second open of the same file, without O_DIRECT: libblkid reads a few bytes here and there. Needs the
// right to open it, which a confined process may lack.
UniqueFd reopen_buffered(int fd, int flags);
// probe_signature() through a descriptor of reopen_buffered(). kHead: only of the first MiB, where a member
// has nothing but superblocks, and without "cowraid": what somebody made of a member who did not know it, and
// may have left superblocks of it further behind.
Result<std::string> probe_buffered(int fd, ContentArea area);

// Overwrites every signature that probe_signature() names, so that nobody takes the device for what it was
// before. `fd` must be writable. kIo when a signature cannot be overwritten.
Status wipe_signatures(int fd);

}  // namespace cowraid
