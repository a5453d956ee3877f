// SPDX-License-Identifier: MIT
// Where the control sockets of mounted volumes lie.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "base/uuid.h"

namespace cowraid {

// The directory of sockets is /run/cowraid for root; for others $XDG_RUNTIME_DIR/cowraid, where that is not
// set /run/user/UID/cowraid if the user has it, else /tmp/cowraid-UID, or /tmp/cowraid-UID-XXXXXX if somebody
// else has taken that name. COWRAID_RUN_DIR overrides. Only directories count that nobody but this user and
// root can have put anything into.

// Root of a user namespace to whom the machine's root is somebody else, and who has no such directory: mounts
// that the kernel says root made are not its own.
bool is_root_without_mounts();

// Of a volume, whether anybody serves them or not.
std::vector<std::string> control_socket_paths(const Uuid& volume);

// Makes the directory of all sockets with mode 0700. kAccess when it is not ours alone (another owner,
// writable by others, not a directory), and `why` says so; kAccess and kIo as the system says, `why` as it
// was.
Result<std::string> make_control_directory(std::string& why);
// A file in it that nobody else opens, whoever may read the directory: who makes a socket or removes those of
// others locks it. kIo.
Result<UniqueFd> open_control_lock(const std::string& directory);
class ControlLock {
public:
    // Waits for others.
    explicit ControlLock(const UniqueFd& file);
    ~ControlLock();
    ControlLock(const ControlLock&) = delete;
    ControlLock& operator=(const ControlLock&) = delete;

private:
    const UniqueFd& file_;
};
// Where the socket of a volume is to be made; makes the directory that it will be in.
Result<std::string> make_control_socket_path(const std::string& directory, const Uuid& volume);

struct ControlSocket {
    Uuid volume;
    std::string path;
};
// Of every volume that has a directory, whether anybody serves it or not.
std::vector<ControlSocket> control_sockets();
// Removes the socket and its now empty directory. Failures do not matter: the next mount cleans up.
void remove_control_socket(const std::string& path);

}  // namespace cowraid
