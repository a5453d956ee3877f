// SPDX-License-Identifier: MIT
// The part of mount.cowraid that talks to the user and the kernel while a daemon opens the volume.
#pragma once

#include "base/unique_fd.h"
#include "tools/mount/mount_request.h"

namespace cowraid {

// Exit codes of mount helpers, mount(8).
inline constexpr int kMountOk = 0;
inline constexpr int kMountUsage = 1;
inline constexpr int kMountSystem = 2;
inline constexpr int kMountInterrupted = 8;
inline constexpr int kMountFailed = 32;

// Finds the members, hands them to the daemon at the other end of `channel`, mounts, and waits until the
// mount answers. Errors and warnings go to standard error. An exit code of mount(8).
int run_mount_helper(UniqueFd channel, const MountRequest& request);

// -o remount,ro and remount,rw of a mounted volume.
int run_remount(const MountRequest& request);

// One line "mount.cowraid: TEXT".
void print_mount_message(const std::string& text);

}  // namespace cowraid
