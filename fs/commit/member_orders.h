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

// `err`, and `text` is why.
inline Status refuse(Err err, std::string& why, std::string text)
{
    why = std::move(text);
    return err;
}

// kBusy: a balance empties the member, to remove it or to make it smaller.
inline Status refuse_emptied(const Volume& volume, MemberId id, std::string& why)
{
    return refuse(
        Err::kBusy, why,
        "member " + std::to_string(id.value) +
            (volume.superblock().balance.shrink_bytes == 0 ? " is being removed" : " is being made smaller") +
            "; cowraid balance cancel ends that");
}

// Nothing in the logs of a member counts any more; not flushed.
Status erase_logs(BlockDevice& device, const MemberRecord& record);

// The same, and no superblock of whatever volume is on the device any more; flushed. That of a `spare`,
// unless 0, stays, and is read: by it a mount finds the device until it is a member.
Status erase_for(BlockDevice& device, const MemberRecord& record, MemberId spare = {});

// A member that was not there at the mount is waited for so much longer than one that failed since.
inline constexpr uint64_t kMissingPatience = 5;

// The device of a spare, for an order that makes it a member with the next superblock (I-37). Commit thread,
// between two commits. kBusy: it is none any more; kIo: it failed.
Result<std::unique_ptr<BlockDevice>> take_spare(Volume& volume, MemberId spare, std::string& why);

}  // namespace cowraid
