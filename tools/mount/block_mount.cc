// SPDX-License-Identifier: MIT
#include "tools/mount/block_mount.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>

#include "base/units.h"

namespace cowraid {

namespace {

// Since this version the kernel passes syncs on. Before it the daemon can hang when it completes asynchronous
// I/O of a file that was closed meanwhile.
constexpr unsigned kKernelMajor = 6;
constexpr unsigned kKernelMinor = 18;
// A command of fsconfig(2) that never shares a superblock which is there already. glibc 2.36 does not know
// it.
constexpr unsigned kCreateExclusive = 8;

bool kernel_is_new_enough()
{
    utsname name;
    unsigned major = 0;
    unsigned minor = 0;
    if (uname(&name) != 0 || sscanf(name.release, "%u.%u", &major, &minor) != 2)
        return false;
    return major > kKernelMajor || (major == kKernelMajor && minor >= kKernelMinor);
}

std::string without_quotes(const std::string& value)
{
    const bool quoted = value.size() >= 2 && value.front() == '"' && value.back() == '"';
    return quoted ? value.substr(1, value.size() - 2) : value;
}

// Fills in what a new superblock needs; the first error stays.
class Settings {
public:
    explicit Settings(int context) : context_(context) { }

    void text(const char* key, const std::string& value)
    {
        ok_ = ok_ && fsconfig(context_, FSCONFIG_SET_STRING, key, value.c_str(), 0) == 0;
    }
    void flag(const char* key) { ok_ = ok_ && fsconfig(context_, FSCONFIG_SET_FLAG, key, nullptr, 0) == 0; }
    [[nodiscard]] bool ok() const { return ok_; }

private:
    int context_;
    bool ok_ = true;
};

bool set_up(int context, int connection, const std::string& source, const MountRequest& request)
{
    Settings settings(context);
    settings.text("source", source);
    settings.text("subtype", "cowraid");
    settings.text("fd", std::to_string(connection));
    settings.text("rootmode", "40000");
    settings.text("user_id", "0");
    settings.text("group_id", "0");
    settings.text("blksize", std::to_string(kBlockBytes));
    settings.flag("default_permissions");
    settings.flag("allow_other");
    for (const auto& [name, value] : request.kernel_options)
        settings.text(name.c_str(), without_quotes(value));
    if ((request.kernel_flags & MS_RDONLY) != 0)
        settings.flag("ro");
    if ((request.kernel_flags & MS_SYNCHRONOUS) != 0)
        settings.flag("sync");
    if ((request.kernel_flags & MS_DIRSYNC) != 0)
        settings.flag("dirsync");
    return settings.ok();
}

// The mount table shows the source as it is written, and the kernel looks it up as a path. So a volume's
// label or uuid, which fstab and umount know, becomes a link in a folder that is current for that moment.
class SourceName {
public:
    SourceName(const std::string& device, const std::string& wanted) : name_(device)
    {
        if (wanted.empty() || wanted.find('/') != std::string::npos || mkdtemp(folder_) == nullptr)
            return;
        made_ = true;
        if (chdir(folder_) == 0 && symlink(device.c_str(), wanted.c_str()) == 0)
            name_ = link_ = wanted;
    }
    ~SourceName()
    {
        if (!link_.empty())
            unlink(link_.c_str());
        if (made_)
            (void)!chdir("/");
        if (made_)
            rmdir(folder_);
    }
    SourceName(const SourceName&) = delete;
    SourceName& operator=(const SourceName&) = delete;

    [[nodiscard]] const std::string& name() const { return name_; }

private:
    char folder_[32] = "/run/cowraid-mount.XXXXXX";
    std::string name_;
    std::string link_;
    bool made_ = false;
};

unsigned attributes_of(unsigned long flags)
{
    struct Pair {
        unsigned long flag;
        unsigned attribute;
    };
    static constexpr Pair kPairs[] = {
        {MS_RDONLY, MOUNT_ATTR_RDONLY},        {MS_NOSUID, MOUNT_ATTR_NOSUID},
        {MS_NODEV, MOUNT_ATTR_NODEV},          {MS_NOEXEC, MOUNT_ATTR_NOEXEC},
        {MS_NOATIME, MOUNT_ATTR_NOATIME},      {MS_STRICTATIME, MOUNT_ATTR_STRICTATIME},
        {MS_NODIRATIME, MOUNT_ATTR_NODIRATIME}};
    unsigned attributes = 0;
    for (const Pair& pair : kPairs) {
        if ((flags & pair.flag) != 0)
            attributes |= pair.attribute;
    }
    return attributes;
}

}  // namespace

Result<UniqueFd> open_mount_point(const std::string& directory, std::string& why)
{
    UniqueFd place(open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    char path[PATH_MAX] = "";
    const ssize_t length =
        place.valid() ? readlink(("/proc/self/fd/" + std::to_string(place.get())).c_str(), path, sizeof path)
                      : -1;
    if (length < 0) {
        why = "mounting on " + directory + ": " + strerror(errno);
        return Err::kIo;
    }
    if (std::string_view(path, static_cast<size_t>(length)) == directory)
        return place;
    why = "mounting on " + directory +
          ": a symbolic link has taken the place of a folder on the way; mount it again";
    return Err::kIo;
}

Result<BlockMount> BlockMount::create(const std::string& device, const MountRequest& request)
{
    if (geteuid() != 0 || !kernel_is_new_enough())
        return Err::kUnsupported;
    UniqueFd connection(open("/dev/fuse", O_RDWR | O_CLOEXEC));
    UniqueFd context(fsopen("fuseblk", FSOPEN_CLOEXEC));
    const SourceName source(device, request.source);
    if (!connection.valid() || !context.valid() ||
        !set_up(context.get(), connection.get(), source.name(), request))
        return Err::kUnsupported;
    if (syscall(SYS_fsconfig, context.get(), kCreateExclusive, nullptr, nullptr, 0) != 0)
        return errno == EBUSY ? Err::kBusy : Err::kUnsupported;
    return BlockMount(std::move(context), std::move(connection));
}

Result<UniqueFd> BlockMount::attach(const MountRequest& request, std::string& why)
{
    CW_ASSIGN(const UniqueFd place, open_mount_point(request.directory, why));
    const UniqueFd mount(fsmount(context_.get(), FSMOUNT_CLOEXEC, attributes_of(request.kernel_flags)));
    if (!mount.valid() || move_mount(mount.get(), "", place.get(), "",
                                     MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0) {
        why = "mounting on " + request.directory + ": " + strerror(errno);
        return Err::kIo;
    }
    context_ = UniqueFd();
    return std::move(connection_);
}

}  // namespace cowraid
