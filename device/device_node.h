// SPDX-License-Identifier: MIT
// Block devices by their number: where sysfs and devtmpfs have them.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/unique_fd.h"

namespace cowraid {

std::string sysfs_of(dev_t device);

// Where udev has its node; empty when nobody says.
std::string block_device_path(dev_t device);

// O_PATH, to open again: the node in devtmpfs, of which the kernel has one for all mount namespaces. So a
// lock on it keeps out those, too, who have another /dev, or nodes made by mknod. Not valid without
// CAP_SYS_ADMIN, without devtmpfs, and where the node was removed.
UniqueFd shared_node_of(dev_t device);

}  // namespace cowraid
