// SPDX-License-Identifier: MIT
#include "base/out_of_memory.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/sanitizer.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "base/units.h"

namespace cowraid {

namespace {

int code_at_end = 1;
uint64_t bytes_allowed = 0;  // 0: no limit of ours
const char* step_at_limit = "";

}  // namespace

void out_of_memory()
{
    std::set_new_handler([] { _exit(code_at_end); });  // should the line want memory
    char text[200];
    if (bytes_allowed != 0)
        snprintf(text, sizeof text, "out of memory: %llu MiB are allowed; %s",
                 static_cast<unsigned long long>(bytes_allowed / kMiB), step_at_limit);
    else
        snprintf(text, sizeof text, "out of memory: the system gives no more");
    log_last_words(text);
    _exit(code_at_end);
}

void end_when_out_of_memory(int exit_code)
{
    code_at_end = exit_code;
    std::set_new_handler(out_of_memory);
}

namespace {

std::string read_text(const std::string& path)
{
    char text[4096];
    const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    const ssize_t bytes = file.valid() ? read(file.get(), text, sizeof text) : 0;
    return {text, static_cast<size_t>(std::max<ssize_t>(bytes, 0))};
}

// The lowest limit of a cgroup and those above it; UINT64_MAX: none.
uint64_t cgroup_limit(const std::string& hierarchy, std::string group, const char* file)
{
    uint64_t least = UINT64_MAX;
    for (; group.starts_with('/'); group.erase(group.rfind('/'))) {
        const std::string text = read_text(hierarchy + (group == "/" ? "" : group) + "/" + file);
        const Result<uint64_t> limit = parse_number(std::string_view(text).substr(0, text.find('\n')));
        if (limit.ok())  // else "max", or no such file
            least = std::min(least, *limit);
    }
    return least;
}

// What the cgroups of this process leave it, of both versions. Lines of /proc/self/cgroup: a number, the
// controllers (none: version 2), the path.
uint64_t cgroup_memory_bytes()
{
    uint64_t least = UINT64_MAX;
    const std::string lines = read_text("/proc/self/cgroup");
    for (const std::string_view line : split(lines, '\n')) {
        const size_t colon = line.find(':'), second = line.find(':', colon + 1);
        if (second == std::string_view::npos)
            continue;
        const std::string_view controllers = line.substr(colon + 1, second - colon - 1);
        const std::string group(line.substr(second + 1));
        if (controllers.empty())
            least = std::min(least, cgroup_limit("/sys/fs/cgroup", group, "memory.max"));
        else if (controllers == "memory")
            least = std::min(least, cgroup_limit("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes"));
    }
    return least;
}

}  // namespace

uint64_t usual_memory_bytes()
{
    const uint64_t machine =
        static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    static const uint64_t cgroups = cgroup_memory_bytes();
    return std::min(machine, cgroups) / 4 * 3;
}

bool limit_memory(uint64_t bytes, const char* next_step)
{
    if (kSanitized || (bytes_allowed != 0 && bytes >= bytes_allowed))
        return true;
    const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
    if (setrlimit(RLIMIT_DATA, &limit) != 0)
        return false;
    bytes_allowed = bytes;
    step_at_limit = next_step;
    return true;
}

}  // namespace cowraid
