// SPDX-License-Identifier: MIT
#include "fuse/caller_status.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>

#include "base/unique_fd.h"

namespace cowraid {

namespace {

constexpr size_t kStatusBytesMax = 64 * 1024;  // room for thousands of groups

std::string read_proc(const std::string& path)
{
    const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    std::string text;
    char piece[4096];
    for (ssize_t count = 0; file.valid() && text.size() < kStatusBytesMax; text.append(piece, count)) {
        count = read(file.get(), piece, sizeof piece);
        if (count <= 0)
            break;
    }
    return text;
}

}  // namespace

std::string caller_status(pid_t task)
{
    return read_proc("/proc/" + std::to_string(task) + "/status");
}

// The link to the namespace may be read by tracers only.
bool shares_user_namespace(pid_t task)
{
    return read_proc("/proc/" + std::to_string(task) + "/uid_map") == read_proc("/proc/self/uid_map");
}

std::string status_field(std::string_view status, std::string_view name)
{
    for (size_t at = 0; at < status.size();) {
        const size_t end = std::min(status.find('\n', at), status.size());
        const std::string_view line = status.substr(at, end - at);
        if (line.starts_with(name))
            return std::string(line.substr(name.size()));
        at = end + 1;
    }
    return {};
}

bool has_capability(std::string_view status, unsigned capability)
{
    return (strtoull(status_field(status, "CapEff:").c_str(), nullptr, 16) >> capability & 1) != 0;
}

// The kernel makes SIGKILL of every signal that ends a process, pending for each of its threads.
bool fatal_signal_pending(std::string_view status)
{
    uint64_t pending = 0;
    for (const std::string_view name : {"SigPnd:", "ShdPnd:"})
        pending |= strtoull(status_field(status, name).c_str(), nullptr, 16);
    return (pending >> (SIGKILL - 1) & 1) != 0;
}

bool fatal_signal_pending(pid_t task)
{
    return fatal_signal_pending(caller_status(task));
}

bool caller_was_killed(fuse_req_t request)
{
    return fuse_req_interrupted(request) != 0 && fatal_signal_pending(fuse_req_ctx(request)->pid);
}

}  // namespace cowraid
