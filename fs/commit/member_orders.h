// SPDX-License-Identifier: MIT
// What orders about members share.
#pragma once

#include "base/status.h"
#include "device/block_device.h"
#include "format/superblock_codec.h"
#include "fs/txn/commit_orders.h"
#include "fs/volume/volume.h"

namespace cowraid {

// Whether there could be one more member like that: an order that changes nothing, to be carried out before
// anything of its device is overwritten.
Ref<CommitOrder> may_add_order(Volume& volume, const MemberRecord& record);

// Nothing in the logs of a member counts any more; not flushed.
Status erase_logs(BlockDevice& device, const MemberRecord& record);

// The same, and no superblock of whatever volume is on the device any more; flushed.
Status erase_for(BlockDevice& device, const MemberRecord& record);

}  // namespace cowraid
