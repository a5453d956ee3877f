// SPDX-License-Identifier: MIT
// What orders about members share.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "device/block_device.h"
#include "format/superblock_codec.h"
#include "fs/txn/commit_orders.h"
#include "fs/volume/volume.h"

namespace cowraid {

// Whether there could be one more member like that: an order that changes nothing, to be carried out before
// anything of its device is overwritten.
Ref<CommitOrder> may_add_order(Volume& volume, const MemberRecord& record);

// `err`, and `text` is why.
inline Status refuse(Err err, std::string& why, std::string text)
{
    why = std::move(text);
    return err;
}

// Nothing in the logs of a member counts any more; not flushed.
Status erase_logs(BlockDevice& device, const MemberRecord& record);

// The same, and no superblock of whatever volume is on the device any more; flushed. That of a `spare`,
// unless 0, stays, and is read: by it a mount finds the device until it is a member.
Status erase_for(BlockDevice& device, const MemberRecord& record, MemberId spare = {});

// The device of a spare, for an order that makes it a member with the next superblock (I-37). Commit thread,
// between two commits. kBusy: it is none any more; kIo: it failed.
Result<std::unique_ptr<BlockDevice>> take_spare(Volume& volume, MemberId spare, std::string& why);

}  // namespace cowraid
