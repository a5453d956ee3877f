// SPDX-License-Identifier: MIT
// The process that serves a mounted volume.
#pragma once

#include "base/unique_fd.h"
#include "tools/mount/mount_request.h"

namespace cowraid {

// Takes members over `channel` (tools/mount/handshake.h), opens the volume, serves the mount until it is
// unmounted or SIGTERM comes, commits, and returns the exit code of the program. Opens no member itself.
// In the background (not `request.foreground`) it leaves the session and terminal of the caller.
int run_mount_daemon(UniqueFd channel, const MountRequest& request);

}  // namespace cowraid
