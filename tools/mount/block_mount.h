// SPDX-License-Identifier: MIT
// A FUSE mount that stands on a block device: the type "fuseblk". The kernel passes sync(2) and syncfs(2) on
// to its daemon, lets umount(2) wait for it, shows the mount at the device and keeps other programs off that.
// It asks nothing else of the device, which may fail and vanish.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "tools/mount/mount_request.h"

namespace cowraid {

// The directory that is at this absolute path without symbolic links, to mount on: whoever owns a folder
// above it may have moved it while the mount waited. kIo with one line in `why`.
Result<UniqueFd> open_mount_point(const std::string& directory, std::string& why);

// The superblock is made before its device is opened as a member, so that somebody holds the device at any
// time, and put into the tree when the volume is open. Dropped without that it leaves nothing behind.
class BlockMount {
public:
    // kUnsupported: not with this kernel, or not for this user. kBusy: the kernel or a program has the
    // device.
    static Result<BlockMount> create(const std::string& device, const MountRequest& request);

    // Mounts it on the request's directory, with the request's flags. The connection of /dev/fuse, once; kIo
    // with one line in `why`.
    Result<UniqueFd> attach(const MountRequest& request, std::string& why);

private:
    BlockMount(UniqueFd context, UniqueFd connection)
        : context_(std::move(context)), connection_(std::move(connection))
    {
    }

    // The connection goes first: a sync(2) may wait for it, and the end of the superblock for that sync.
    UniqueFd context_;  // keeps the superblock until it is mounted
    UniqueFd connection_;
};

}  // namespace cowraid
