// SPDX-License-Identifier: MIT
// Where the control sockets of mounted volumes lie.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "base/uuid.h"

namespace cowraid {

// /run/cowraid for root, $XDG_RUNTIME_DIR/cowraid or /tmp/cowraid-UID for others; COWRAID_RUN_DIR overrides.
std::string control_directory();
std::string control_socket_path(const Uuid& volume);

// Makes the directory of all sockets with mode 0700 and locks it while the descriptor lives: who makes a
// socket or removes those of others holds it. kAccess when it is not ours alone (another owner, writable by
// others, not a directory); kIo as the system says.
Result<UniqueFd> lock_control_directory();
// The same for the directory of a volume's socket.
Status make_volume_directory(const Uuid& volume);
// Every volume that has a directory, whether anybody serves it or not.
std::vector<Uuid> volumes_with_directory();
// Removes the socket and its now empty directory. Failures do not matter: the next mount cleans up.
void remove_control_socket(const Uuid& volume);

}  // namespace cowraid
