// SPDX-License-Identifier: MIT
// Where the control sockets of mounted volumes lie.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "base/uuid.h"

namespace cowraid {

// /run/cowraid for root. For others $XDG_RUNTIME_DIR/cowraid, where that is not set /run/user/UID/cowraid if
// the user has it, else /tmp/cowraid-UID. COWRAID_RUN_DIR overrides.
std::string control_directory();
// Only this user or root can have put anything there. False also when there is no such directory.
bool control_directory_is_trusted();
std::string control_socket_path(const Uuid& volume);

// Makes the directory of all sockets with mode 0700 and locks it while the descriptor lives: who makes a
// socket or removes those of others holds it. kAccess when it is not ours alone (another owner, writable by
// others, not a directory), and `why` says so; kAccess and kIo as the system says, `why` as it was.
Result<UniqueFd> lock_control_directory(std::string& why);
// The same for the directory of a volume's socket.
Status make_volume_directory(const Uuid& volume);
// Every volume that has a directory, whether anybody serves it or not. None in a directory not to be trusted.
std::vector<Uuid> volumes_with_directory();
// Removes the socket and its now empty directory. Failures do not matter: the next mount cleans up.
void remove_control_socket(const Uuid& volume);

}  // namespace cowraid
