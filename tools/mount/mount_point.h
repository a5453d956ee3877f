// SPDX-License-Identifier: MIT
// The kernel's side of a mount: attaching, tuning, remounting, detaching.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "base/unique_fd.h"
#include "control/mount_table.h"
#include "tools/mount/block_mount.h"
#include "tools/mount/mount_request.h"

namespace cowraid {

// Whether something can be mounted on the directory. A dead mount of a killed daemon there is detached
// first. kNotFound, kNotDirectory, kAccess, kIo with one line in `why`.
Status prepare_mount_point(const std::string& directory, std::string& why);

struct KernelMount {
    UniqueFd connection;  // /dev/fuse, mounted; nobody serves it yet
    MountEntry entry;  // as the kernel lists it
};

// Mounts `block`, else a FUSE connection, as the request says; users who are not root go through fusermount3.
// kUnsupported: root cannot open /dev/fuse.
Result<KernelMount> attach_mount(const MountRequest& request, std::optional<BlockMount> block,
                                 std::string& why);

// Lifts the limits that FUSE mounts start with: 1 % of the dirty pages, 128 KiB of read-ahead. Needs root;
// a failure costs speed only.
void tune_mount(const MountEntry& entry);

// Changes the mount flags. kBusy when files are open for writing and the request is read-only.
Status remount_kernel(const MountRequest& request, std::string& why);

// umount2(2) with `flags`, for users fusermount3. kBusy, kIo with `why`.
Status unmount(const std::string& directory, int flags, std::string& why);

// Takes the mount `device` off `directory`, writing back what programs dirtied through mappings. kOk: it is
// gone. kBusy: it is in use and was detached only from the tree. kNotFound: another mount is there, or none.
Status detach_mount(const std::string& directory, const std::string& device);

}  // namespace cowraid
