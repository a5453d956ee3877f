// SPDX-License-Identifier: MIT
// Where the control sockets of mounted volumes lie.
#pragma once

#include <string>

#include "base/status.h"
#include "base/uuid.h"

namespace cowraid {

// /run/cowraid for root, $XDG_RUNTIME_DIR/cowraid or /tmp/cowraid-UID for others; COWRAID_RUN_DIR overrides.
std::string control_directory();
std::string control_socket_path(const Uuid& volume);

// Makes the directories of a volume's socket with mode 0700. kAccess when one is not ours alone (another
// owner, writable by others, not a directory); kIo as the system says.
Status make_control_directories(const Uuid& volume);
// Removes the socket and its now empty directory. Failures do not matter: the next mount cleans up.
void remove_control_socket(const Uuid& volume);

}  // namespace cowraid
