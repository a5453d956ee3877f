// SPDX-License-Identifier: MIT
// A member as udev describes filesystems: what lsblk -f, /dev/disk/by-label and fstab's LABEL= go by.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "format/superblock_codec.h"

namespace cowraid {

// Names and values of udev properties (ID_FS_...) of the member that `superblock` was read from, encoded as
// udev encodes them: whatever the label holds, each value is one line and a safe name of a link. As with
// btrfs all members have the uuid of the volume; ID_FS_UUID_SUB tells them apart.
std::vector<std::pair<std::string, std::string>> udev_properties(const Superblock& superblock);

}  // namespace cowraid
