// SPDX-License-Identifier: MIT
// What orders about members share.
#pragma once

#include "base/status.h"
#include "device/block_device.h"
#include "format/superblock_codec.h"

namespace cowraid {

// Nothing in the logs of a member counts any more; not flushed.
Status erase_logs(BlockDevice& device, const MemberRecord& record);

// The same, and no superblock of whatever volume is on the device any more; flushed.
Status erase_for(BlockDevice& device, const MemberRecord& record);

}  // namespace cowraid
