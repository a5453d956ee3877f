// SPDX-License-Identifier: MIT
// What /proc/PID/status says of the task that made a request.
#pragma once

#include <fuse3/fuse_lowlevel.h>
#include <sys/types.h>

#include <string>
#include <string_view>

namespace cowraid {

// Empty where /proc does not show the task: it is in a namespace of its own, say.
std::string caller_status(pid_t task);
// The rest of the line of such a text that begins with `name`, which has the colon.
std::string status_field(std::string_view status, std::string_view name);

// Whether the task has a capability in effect, by its number in <linux/capability.h>.
bool has_capability(std::string_view status, unsigned capability);

// Whether capabilities of the task count for this process' files: those that somebody has in a user namespace
// of his own do not. Decided by the map of user ids.
bool shares_user_namespace(pid_t task);

// Whether the task is about to be killed.
bool fatal_signal_pending(pid_t task);
bool fatal_signal_pending(std::string_view status);
// Whether who sent the request was killed. fuse_req_interrupted() alone would also be true for signals that
// the program goes on after.
bool caller_was_killed(fuse_req_t request);

}  // namespace cowraid
