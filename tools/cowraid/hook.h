// SPDX-License-Identifier: MIT
// A program of the administrator that is called with events, as by mdadm --monitor --program.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace cowraid {

// Only a program that nobody but root and this user can change is called: an absolute path to a regular file
// that may be executed; it and its folder belong to root or this user and are not writable by others.
// kAccess, kInvalid, kNotFound; `why` is one line with the next step.
Status validate_hook(const std::string& path, std::string& why);

// Calls it with these arguments and nothing at its standard input, without a shell, and waits until it ends.
// One that takes longer than `seconds` is killed, with what it started in its process group. kIo: it could
// not be started, was killed or ended with another code than 0. `why` says which.
Status run_hook(const std::string& path, const std::vector<std::string>& arguments, unsigned seconds,
                std::string& why);

}  // namespace cowraid
