// SPDX-License-Identifier: MIT
// What a process of ours gives up before it looks at bytes that anybody may have written.
#pragma once

#include <cstdint>
#include <string>

#include "base/unique_fd.h"

namespace cowraid {

// Collects the paths that the process still needs, then confines it. Descriptors that are open keep working.
class Confinement {
public:
    enum class Access : uint8_t {
        kRead,  // files, and directories with all below
        kReadWrite,
        kSockets,  // make, list and remove sockets and directories below
    };

    Confinement();

    // Nothing happens when the path is not there, or the kernel has no Landlock.
    void allow(const std::string& path, Access access);

    // Of a process with one thread, once; later threads inherit it. The process keeps no capability, gains
    // none by executing, is not dumped, opens nothing but what was allowed (Landlock), and makes none of the
    // system calls that start programs, trace, mount, load into the kernel, or open sockets other than
    // AF_UNIX (seccomp; they fail with EPERM). Returns what the kernel cannot do of it, for the log; empty
    // when nothing lacks. Does nothing in a build with a sanitizer, which needs some of these.
    std::string enter();

private:
    UniqueFd rules_;  // invalid: the kernel has no Landlock
    uint64_t handled_ = 0;
};

// For a process that keeps `capabilities` (a mask of 1 << CAP_...): no others, no dumps.
void keep_capabilities(uint64_t capabilities);

}  // namespace cowraid
