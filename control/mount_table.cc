// SPDX-License-Identifier: MIT
#include "control/mount_table.h"

#include <dirent.h>
#include <fcntl.h>
#include <libmount/libmount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <set>

#include "base/assert.h"
#include "base/text.h"
#include "control/control_path.h"

namespace cowraid {

namespace {

constexpr int kProbeLooksMax = 1000;
constexpr useconds_t kProbeLookMicroseconds = 2000;

MountEntry entry_of(libmnt_fs* mount)
{
    const auto text = [](const char* value) {
        return std::string(value == nullptr ? "" : value);
    };
    const auto is_set = [&](const char* name) {
        return mnt_optstr_get_option(mnt_fs_get_fs_options(mount), name, nullptr, nullptr) == 0;
    };
    const dev_t device = mnt_fs_get_devno(mount);
    const auto value_of = [&](const char* name) {
        char* value = nullptr;
        size_t bytes = 0;
        mnt_fs_get_option(mount, name, &value, &bytes);
        return value == nullptr ? std::string() : std::string(value, bytes);
    };
    return {.device = std::to_string(major(device)) + ":" + std::to_string(minor(device)),
            .directory = text(mnt_fs_get_target(mount)),
            .type = text(mnt_fs_get_fstype(mount)),
            .source = text(mnt_fs_get_source(mount)),
            .flags = text(mnt_fs_get_vfs_options(mount)),
            .read_only = is_set("ro"),
            .synchronous = is_set("sync"),
            .owner = value_of("user_id"),
            .group = value_of("group_id")};
}

Result<std::vector<MountEntry>> read_mount_table_of(const std::string& process)
{
    FILE* const file = fopen((process + "/mountinfo").c_str(), "re");
    if (file == nullptr)
        return Err::kIo;
    auto table = parse_mount_table(file);
    fclose(file);
    return table;
}

}  // namespace

std::vector<MountEntry> parse_mount_table(FILE* file)
{
    std::vector<MountEntry> entries;
    libmnt_table* const table = mnt_new_table();
    libmnt_iter* const iterator = mnt_new_iter(MNT_ITER_FORWARD);
    CW_ASSERT(table != nullptr && iterator != nullptr);
    // libmount resolves the name: one without a slash would ask the working directory, which may be on a
    // mount.
    mnt_table_parse_stream(table, file, "/proc/self/mountinfo");
    for (libmnt_fs* mount = nullptr; mnt_table_next_fs(table, iterator, &mount) == 0;)
        entries.push_back(entry_of(mount));
    mnt_free_iter(iterator);
    mnt_unref_table(table);
    return entries;
}

Result<std::vector<MountEntry>> read_mount_table()
{
    return read_mount_table_of("/proc/self");
}

const MountEntry* mount_at(const std::vector<MountEntry>& table, const std::string& directory)
{
    const MountEntry* found = nullptr;
    for (const MountEntry& entry : table) {
        if (entry.directory == directory)
            found = &entry;
    }
    return found;
}

bool MountEntry::is_of_this_user() const
{
    return owner == std::to_string(geteuid()) && !is_root_without_mounts();
}

std::string why_not_answered(const std::string& path, const MountEntry& entry)
{
    if (entry.is_of_this_user())
        return path + " is in a cowraid volume, and its daemon does not answer (stopped or busy); see the "
                      "system log";
    const bool by_root = entry.owner == "0";
    return path + " is in a cowraid volume that " + (by_root ? "root" : "user " + entry.owner) +
           " mounted; only " + (by_root ? "root" : "that user") + " may ask its daemon";
}

bool device_is_mounted(const std::vector<MountEntry>& table, const std::string& device)
{
    for (const MountEntry& entry : table) {
        if (entry.device == device)
            return true;
    }
    return false;
}

namespace {

// Whether what the link leads to is on the mount. Does not wait for the mount's daemon.
bool leads_to(const std::string& link, const std::string& device)
{
    struct statx info { };
    if (statx(AT_FDCWD, link.c_str(), AT_STATX_DONT_SYNC, 0, &info) != 0)
        return false;
    return std::to_string(info.stx_dev_major) + ":" + std::to_string(info.stx_dev_minor) == device;
}

bool uses(const std::string& process, const std::string& device)
{
    if (leads_to(process + "/cwd", device) || leads_to(process + "/root", device))
        return true;
    DIR* const files = opendir((process + "/fd").c_str());
    bool found = false;
    while (const dirent* entry = files == nullptr || found ? nullptr : readdir(files))
        found = leads_to(process + "/fd/" + entry->d_name, device);
    if (files != nullptr)
        closedir(files);
    return found;
}

std::vector<int> all_processes()
{
    std::vector<int> pids;
    DIR* const processes = opendir("/proc");
    while (const dirent* entry = processes == nullptr ? nullptr : readdir(processes))
        if (const auto pid = parse_number(entry->d_name); pid.ok())
            pids.push_back(static_cast<int>(*pid));
    if (processes != nullptr)
        closedir(processes);
    return pids;
}

}  // namespace

std::optional<ForeignMount> find_foreign_mount(const std::string& device)
{
    std::set<ino_t> seen;
    for (const int pid : all_processes()) {
        const std::string process = "/proc/" + std::to_string(pid);
        struct stat space { };
        if (stat((process + "/ns/mnt").c_str(), &space) != 0 || !seen.insert(space.st_ino).second)
            continue;
        const auto table = read_mount_table_of(process);
        for (const MountEntry& entry : table.ok() ? *table : std::vector<MountEntry>())
            if (entry.device == device)
                return ForeignMount{entry.directory, pid};
    }
    return std::nullopt;
}

std::vector<int> processes_using(const std::string& device)
{
    std::vector<int> pids;
    for (const int pid : all_processes())
        if (uses("/proc/" + std::to_string(pid), device))
            pids.push_back(pid);
    return pids;
}

// stat() may succeed from attributes the kernel remembers; statfs() always asks the daemon.
bool is_dead_mount(const std::string& path)
{
    struct statfs ignored { };
    return statfs(path.c_str(), &ignored) != 0 && (errno == ENOTCONN || errno == ECONNABORTED);
}

bool says_it_is_dead(const std::string& path)
{
    const pid_t child = fork();
    if (child < 0)
        return false;
    if (child == 0) {
        const gid_t group = getegid();
        const uid_t user = geteuid();
        const bool is_one = setresgid(group, group, group) == 0 && setresuid(user, user, user) == 0;
        _exit(is_one && is_dead_mount(path) ? 0 : 1);
    }
    for (int looks = 0; looks < kProbeLooksMax; ++looks) {
        int result = 0;
        if (const pid_t ended = waitpid(child, &result, WNOHANG); ended != 0)
            return ended == child && WIFEXITED(result) && WEXITSTATUS(result) == 0;
        usleep(kProbeLookMicroseconds);
    }
    // Nobody waits for it: it may not end before the mount answers.
    kill(child, SIGKILL);
    return false;
}

std::string mount_point_path(const std::string& path)
{
    char resolved[PATH_MAX];
    if (realpath(path.c_str(), resolved) != nullptr)
        return resolved;
    // A dead mount may refuse even that; its parent does not.
    std::string text = absolute_path(path);
    while (text.size() > 1 && text.back() == '/')
        text.pop_back();
    const size_t slash = text.rfind('/');
    if (slash == std::string::npos || realpath(text.substr(0, slash + 1).c_str(), resolved) == nullptr)
        return text;
    const std::string parent = resolved;
    return (parent == "/" ? "" : parent) + text.substr(slash);
}

bool has_block_mount(const std::string& path)
{
    struct stat info;
    if (stat(path.c_str(), &info) != 0 || !S_ISBLK(info.st_mode))
        return false;
    const std::string number =
        std::to_string(major(info.st_rdev)) + ":" + std::to_string(minor(info.st_rdev));
    return access(("/sys/class/bdi/" + number + kBlockMountSuffix).c_str(), F_OK) == 0;
}

}  // namespace cowraid
