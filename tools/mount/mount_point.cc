// SPDX-License-Identifier: MIT
#include "tools/mount/mount_point.h"

#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/text.h"
#include "control/mount_table.h"

namespace cowraid {

namespace {

constexpr const char* kFuseDevice = "/dev/fuse";

struct BdiSetting {
    const char* name;
    const char* value;
};
// strict_limit before max_ratio: the ratio binds only without it.
constexpr BdiSetting kBdiSettings[] = {
    {"strict_limit", "0"}, {"max_ratio", "100"}, {"read_ahead_kb", "4096"}};

std::string errno_line(const std::string& what)
{
    return what + ": " + strerror(errno);
}

bool detach_dead_mount(const std::string& directory)
{
    const auto table = read_mount_table();
    if (!table.ok())
        return false;
    const MountEntry* const entry = mount_at(*table, directory);
    std::string ignored;
    return entry != nullptr && entry->is_cowraid() && unmount(directory, MNT_DETACH, ignored).ok();
}

Result<UniqueFd> attach_as_root(const MountRequest& request, std::string& why)
{
    UniqueFd connection(open(kFuseDevice, O_RDWR | O_CLOEXEC));
    if (!connection.valid()) {
        why = errno_line(kFuseDevice) + "; load the fuse module: modprobe fuse";
        return Err::kUnsupported;
    }
    std::string data = "fd=" + std::to_string(connection.get()) +
                       ",rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other";
    for (const auto& [name, value] : request.kernel_options)
        data += "," + name + "=" + value;
    CW_ASSIGN(const UniqueFd place, open_mount_point(request.directory, why));
    const std::string path = "/proc/self/fd/" + std::to_string(place.get());
    if (mount(request.source.c_str(), path.c_str(), kMountType, request.kernel_flags, data.c_str()) != 0) {
        why = errno_line("mounting on " + request.directory);
        return Err::kIo;
    }
    return connection;
}

bool is_installed(const std::string& program)
{
    const char* const path = getenv("PATH");
    for (const std::string_view directory : split(path == nullptr ? "/usr/bin:/bin" : path, ':'))
        if (access((std::string(directory) + "/" + program).c_str(), X_OK) == 0)
            return true;
    return false;
}

// A session of libfuse is the way to fusermount3; only its descriptor is wanted.
Result<UniqueFd> attach_as_user(const MountRequest& request, std::string& why)
{
    std::string fsname = "fsname=";
    for (const char c : request.source) {
        if (c == ',' || c == '\\')
            fsname += '\\';
        fsname += c;
    }
    std::string options = fsname + ",subtype=cowraid,default_permissions";
    options += (request.kernel_flags & MS_RDONLY) != 0 ? ",ro" : ",rw";
    if ((request.kernel_flags & MS_NOEXEC) != 0)
        options += ",noexec";
    if (request.allow_other)
        options += ",allow_other";
    char program[] = "mount.cowraid";
    char flag[] = "-o";
    char* arguments[] = {program, flag, options.data(), nullptr};
    fuse_args args = FUSE_ARGS_INIT(3, arguments);
    const fuse_lowlevel_ops none{};
    fuse_session* const session = fuse_session_new(&args, &none, sizeof none, nullptr);
    if (session == nullptr || fuse_session_mount(session, request.directory.c_str()) != 0) {
        // What fusermount3 had to say is on standard error already.
        why = "mounting on " + request.directory +
              (is_installed("fusermount3") ? " was refused by fusermount3"
                                           : " needs fusermount3; install the package fuse3");
        return Err::kIo;
    }
    // The session itself is left alone until this program ends: to destroy it would unmount.
    UniqueFd connection(fuse_session_fd(session));
    fcntl(connection.get(), F_SETFD, FD_CLOEXEC);
    return connection;
}

MountEntry mounted_at(const std::string& directory)
{
    const auto table = read_mount_table();
    const MountEntry* const entry = table.ok() ? mount_at(*table, directory) : nullptr;
    return entry == nullptr ? MountEntry() : *entry;
}

// umount2 for users.
Status unmount_as_user(const std::string& directory, bool lazy)
{
    const char* arguments[] = {"fusermount3", lazy ? "-uqz" : "-uq", "--", directory.c_str(), nullptr};
    pid_t child = 0;
    if (posix_spawnp(&child, arguments[0], nullptr, nullptr, const_cast<char* const*>(arguments), environ) !=
        0)
        return Err::kIo;
    int result = 0;
    while (waitpid(child, &result, 0) < 0) {
        if (errno != EINTR)
            return Err::kIo;
    }
    return result == 0 ? Status() : Status(Err::kBusy);
}

// Writes back what programs dirtied through shared mappings: a forced end would lose it.
void write_back(const std::string& directory, const std::string& device)
{
    const UniqueFd root(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct stat info { };
    if (!root.valid() || fstat(root.get(), &info) != 0)
        return;
    if (std::to_string(major(info.st_dev)) + ":" + std::to_string(minor(info.st_dev)) == device)
        (void)syncfs(root.get());
}

}  // namespace

Status prepare_mount_point(const std::string& directory, std::string& why)
{
    bool dead;
    while ((dead = says_it_is_dead(directory)) && detach_dead_mount(directory)) { }
    // A daemon that stands still is not asked.
    struct statx info { };
    const int flags = AT_NO_AUTOMOUNT | (dead ? 0 : AT_STATX_DONT_SYNC);
    if (statx(AT_FDCWD, directory.c_str(), flags, STATX_TYPE, &info) != 0) {
        const int error = errno;
        why = errno_line("mount point " + directory);
        if (error == ENOENT)
            why += "; create it with mkdir";
        return error == ENOENT ? Err::kNotFound : error == EACCES ? Err::kAccess : Err::kIo;
    }
    if (!S_ISDIR(info.stx_mode)) {
        why = "mount point " + directory + " is not a directory; name one";
        return Err::kNotDirectory;
    }
    return {};
}

Result<KernelMount> attach_mount(const MountRequest& request, std::optional<BlockMount> block,
                                 std::string& why)
{
    KernelMount mounted;
    if (block.has_value()) {
        CW_ASSIGN(mounted.connection, block->attach(request, why));
    } else if (geteuid() == 0) {
        CW_ASSIGN(mounted.connection, attach_as_root(request, why));
    } else {
        CW_ASSIGN(mounted.connection, attach_as_user(request, why));
    }
    mounted.entry = mounted_at(request.directory);
    return mounted;
}

void tune_mount(const MountEntry& entry)
{
    if (geteuid() != 0 || entry.device.empty())
        return;
    const std::string suffix = entry.type == kBlockMountType ? kBlockMountSuffix : "";
    for (const BdiSetting& setting : kBdiSettings) {
        const std::string path = "/sys/class/bdi/" + entry.device + suffix + "/" + setting.name;
        const UniqueFd file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
        if (file.valid())
            (void)!write(file.get(), setting.value, strlen(setting.value));
    }
}

Status remount_kernel(const MountRequest& request, std::string& why)
{
    const bool point_alone = (request.kernel_flags & MS_RDONLY) != 0 && !request.options.read_only;
    if (mount(request.source.c_str(), request.directory.c_str(), kMountType,
              request.kernel_flags | MS_REMOUNT | (point_alone ? MS_BIND : 0), nullptr) == 0)
        return {};
    const bool busy = errno == EBUSY;
    why = errno_line("remounting " + request.directory);
    if (busy)
        why += "; files are open for writing";
    return busy ? Err::kBusy : Err::kIo;
}

Status unmount(const std::string& directory, int flags, std::string& why)
{
    if (geteuid() != 0) {
        const Status status = unmount_as_user(directory, (flags & MNT_DETACH) != 0);
        const std::string owner = mounted_at(directory).owner;
        if (!status.ok() && !owner.empty() && owner != std::to_string(geteuid()))
            why = directory + " was mounted by " + (owner == "0" ? "root" : "user " + owner) + "; only " +
                  (owner == "0" ? "root" : "that user or root") + " may unmount it";
        else if (!status.ok())
            why = "fusermount3 refused to unmount " + directory + "; is it in use?";
        return status;
    }
    if (umount2(directory.c_str(), flags | UMOUNT_NOFOLLOW) == 0)
        return {};
    const bool busy = errno == EBUSY;
    why = errno_line("unmounting " + directory);
    if (busy)
        why += "; see who uses it: fuser -vm " + directory;
    return busy ? Err::kBusy : Err::kIo;
}

Status detach_mount(const std::string& directory, const std::string& device)
{
    if (mounted_at(directory).device != device)
        return Err::kNotFound;
    write_back(directory, device);
    std::string ignored;
    if (unmount(directory, 0, ignored).ok())
        return {};
    return unmount(directory, MNT_DETACH, ignored).ok() ? Err::kBusy : Err::kIo;
}

}  // namespace cowraid
