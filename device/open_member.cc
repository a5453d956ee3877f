// SPDX-License-Identifier: MIT
#include "device/open_member.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "base/units.h"
#include "device/ask_apart.h"
#include "device/device_node.h"
#include "device/loop_backing.h"

namespace cowraid {

const char* next_step_when_denied()
{
    return geteuid() == 0 ? "a container, a security policy or another user's FUSE mount forbids it"
                          : "run as root";
}

namespace {

Err explain_open_error(const std::string& path, int error, std::string& why)
{
    switch (error) {
    case EBUSY:
    case EWOULDBLOCK:
        why = path +
              " is in use: mounted, held by another program, or by a mounted volume that it is or was a "
              "member of; unmount that first";
        return Err::kBusy;
    case ENOENT:
        why = path + " does not exist; check the name";
        return Err::kNotFound;
    case EACCES:
    case EPERM:
        why = path + " may not be opened: " + std::strerror(error) + "; " + next_step_when_denied();
        return error == EACCES ? Err::kAccess : Err::kNotPermitted;
    case EROFS:
        why = path + " is write-protected; allow writing first";
        return Err::kReadOnly;
    default:
        why = path + " cannot be opened: " + std::strerror(error) + "; check the device";
        return Err::kIo;
    }
}

Status check_kind(const std::string& path, const struct stat& info, std::string& why)
{
    if (S_ISBLK(info.st_mode) || S_ISREG(info.st_mode))
        return Err::kOk;
    why = path + " is neither a block device nor a regular file; name a disk, a partition or an image file";
    return Err::kInvalid;
}

// Writes beyond the limit of file sizes fail, as if the member did.
Status check_file_size_limit(const std::string& path, const struct stat& info, std::string& why)
{
    rlimit limit{};
    if (!S_ISREG(info.st_mode) || getrlimit(RLIMIT_FSIZE, &limit) != 0 ||
        static_cast<uint64_t>(info.st_size) <= limit.rlim_cur)
        return {};
    why = path + " is larger than the " + std::to_string(limit.rlim_cur) +
          " bytes that this process may write to a file; raise the limit: ulimit -H -f";
    return Err::kFileTooBig;
}

constexpr uint32_t kBusyPauseMilliseconds = 20;

void pause_while_busy()
{
    usleep(kBusyPauseMilliseconds * 1000);
}

uint32_t tries_max_of(const OpenOptions& options)
{
    return options.patience_milliseconds / kBusyPauseMilliseconds + 1;
}

int open_patiently(const std::string& path, int flags, const OpenOptions& options)
{
    const uint32_t tries_max = options.exclusive ? tries_max_of(options) : 1;
    for (uint32_t tries = 1;; ++tries) {
        const int fd = open(path.c_str(), flags);
        // EWOULDBLOCK: somebody has a lease on the file.
        if (fd >= 0 || (errno != EBUSY && errno != EWOULDBLOCK) || tries == tries_max)
            return fd;
        pause_while_busy();
    }
}

struct flock lock_of(short type)
{
    struct flock lock { };
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    return lock;
}

// Of the open file, so that it goes to whoever gets a copy of the descriptor. Not flock(), which tells udev
// to leave a device alone, and which takes no leave to write. Readers may share. kBusy after some patience.
Status lock_patiently(const std::string& path, int fd, const OpenOptions& options, std::string& why)
{
    for (uint32_t tries = 1;; ++tries) {
        struct flock lock = lock_of(options.read_only ? F_RDLCK : F_WRLCK);
        if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
            return {};
        if (errno != EAGAIN && errno != EACCES)
            return explain_open_error(path, errno, why);
        if (tries == tries_max_of(options))
            break;
        pause_while_busy();
    }
    struct flock holder = lock_of(F_WRLCK);
    const bool by_reader = fcntl(fd, F_OFD_GETLK, &holder) == 0 && holder.l_type == F_RDLCK;
    if (!by_reader)
        return explain_open_error(path, EBUSY, why);
    // Whoever may read a file may lock it against writers.
    why = path + " is mounted read-only, or locked by another program that reads it (fuser " + path +
          " names it); end that first";
    return Err::kBusy;
}

bool is_locked(int fd, const OpenOptions& options)
{
    struct flock holder = lock_of(options.read_only ? F_RDLCK : F_WRLCK);
    return fcntl(fd, F_OFD_GETLK, &holder) == 0 && holder.l_type != F_UNLCK;
}

// The flags every member is opened with. O_NONBLOCK until it is known what was opened: what was looked at
// may be a pipe by now.
int open_flags(const struct stat& info, const OpenOptions& options)
{
    int flags = O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (options.read_only ? O_RDONLY : O_RDWR);
    if (S_ISBLK(info.st_mode) && options.exclusive)
        flags |= O_EXCL;
    if (options.owner.has_value())
        flags |= O_NOFOLLOW;
    return flags;
}

// What was opened, now that it cannot change any more.
Status check_opened(const std::string& path, int fd, const OpenOptions& options, struct stat& info,
                    std::string& why)
{
    if (fstat(fd, &info) != 0)
        return explain_open_error(path, errno, why);
    CW_TRY(check_kind(path, info, why));
    if (options.owner.has_value() && (!S_ISREG(info.st_mode) || info.st_uid != *options.owner)) {
        why = path + " has been exchanged while it was looked at; name the members to use";
        return Err::kInvalid;
    }
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0)
        return explain_open_error(path, errno, why);
    return {};
}

Status check_block_device(const std::string& path, int fd, const OpenOptions& options, std::string& why)
{
    int sector_bytes = 0;
    if (ioctl(fd, BLKSSZGET, &sector_bytes) != 0)
        return explain_open_error(path, errno, why);
    if (static_cast<uint64_t>(sector_bytes) > kBlockBytes) {
        why = path + " has sectors of " + std::to_string(sector_bytes) +
              " bytes; members must have sectors of at most 4096";
        return Err::kInvalid;
    }
    return options.read_only ? Status() : check_writable(fd, path, why);
}

// Files have no O_EXCL, so programs that use an image agree by a lock. First the lock, then a look for loop
// devices: who attaches one looks for the lock afterwards, so that one of two sees the other.
Status lock_image(const std::string& path, int fd, const struct stat& info, const OpenOptions& options,
                  std::string& why)
{
    CW_TRY(lock_patiently(path, fd, options, why));
    const std::string loop = loop_device_over(info);
    if (loop.empty())
        return Err::kOk;
    why = path + " is attached as " + loop + "; use that device, or detach it first: losetup -d " + loop;
    return Err::kBusy;
}

constexpr uint64_t kWaysMs = 2000;

// As far as they can be told in time: a loop device over a file of a server that does not answer cannot.
std::vector<std::string> ways_in_time(dev_t device)
{
    AskApart apart;
    apart.ask("loop devices", [&] {
        std::string text;
        for (const std::string& way : other_ways_to(device))
            text += way + '\n';
        const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
        return std::vector<std::byte>(bytes.begin(), bytes.end());
    });
    std::string text;
    for (const AskApart::Answer& answer : apart.wait(kWaysMs))
        if (answer)
            text.append(reinterpret_cast<const char*>(answer->data()), answer->size());
    const std::vector<std::string_view> lines = split(text, '\n');
    return {lines.begin(), lines.end() - 1};  // behind the last end of a line stands nothing
}

// The same: first the lock, then a look. Two that come at once by two ways may both be refused.
Status lock_device(const std::string& path, int fd, const struct stat& info, const OpenOptions& options,
                   std::string& why)
{
    CW_TRY(lock_patiently(path, fd, options, why));
    for (const std::string& other : ways_in_time(info.st_rdev)) {
        const UniqueFd way(open(other.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
        if (!way.valid() || !is_locked(way.get(), options))
            continue;
        why = path + " leads to the same bytes as " + other + ", which is in use; unmount that first";
        return Err::kBusy;
    }
    return {};
}

}  // namespace

Result<MemberIdentity> identify_member(const std::string& path)
{
    struct stat info;
    if (stat(path.c_str(), &info) != 0)
        return Err::kNotFound;
    if (S_ISBLK(info.st_mode))
        return MemberIdentity{.is_block_device = true, .device = info.st_rdev};
    return MemberIdentity{.device = info.st_dev, .inode = info.st_ino};
}

Status check_writable(int fd, const std::string& name, std::string& why)
{
    int read_only = 0;
    if (ioctl(fd, BLKROGET, &read_only) == 0 && read_only != 0)
        return explain_open_error(name, EROFS, why);
    const int flags = fcntl(fd, F_GETFL);
    if (flags >= 0 && (flags & O_ACCMODE) != O_RDONLY)
        return Err::kOk;
    why = name + " was write-protected when the volume was mounted; unmount and mount again";
    return Err::kReadOnly;
}

Result<UniqueFd> open_member_fd(const std::string& path, const OpenOptions& options, std::string& why)
{
    // Looked at before it is opened, because opening a pipe or a tape is not without effect.
    struct stat info;
    if (stat(path.c_str(), &info) != 0)
        return explain_open_error(path, errno, why);
    CW_TRY(check_kind(path, info, why));
    int flags = open_flags(info, options);
    std::string place = path;
    // Where that node is out of reach, a lock would not keep everybody out: then the mount does.
    const UniqueFd node = options.under_mount ? shared_node_of(info.st_rdev) : UniqueFd();
    if (node.valid()) {
        flags &= ~(O_EXCL | O_NOFOLLOW);
        place = "/proc/self/fd/" + std::to_string(node.get());
    }
    UniqueFd fd(open_patiently(place, flags | O_DIRECT, options));
    // A filesystem without direct I/O: synchronous writes still report their errors at the write.
    if (!fd.valid() && errno == EINVAL)
        fd = UniqueFd(open(place.c_str(), flags | O_DSYNC));
    if (!fd.valid())
        return explain_open_error(path, errno, why);
    CW_TRY(check_opened(path, fd.get(), options, info, why));
    if (!options.read_only)
        CW_TRY(check_file_size_limit(path, info, why));
    const bool is_block_device = S_ISBLK(info.st_mode);
    if (is_block_device)
        CW_TRY(check_block_device(path, fd.get(), options, why));
    if (options.exclusive)
        CW_TRY(is_block_device ? lock_device(path, fd.get(), info, options, why)
                               : lock_image(path, fd.get(), info, options, why));
    return fd;
}

Result<std::unique_ptr<FileDevice>> open_member(const std::string& path, const OpenOptions& options,
                                                std::string& why)
{
    CW_ASSIGN(UniqueFd fd, open_member_fd(path, options, why));
    auto device = FileDevice::adopt(std::move(fd), path);
    if (!device.ok())
        why = path + ": its size cannot be read; check the device";
    return device;
}

Result<std::unique_ptr<FileDevice>> make_device_from_fd(UniqueFd fd, std::string name,
                                                        const OpenOptions& options, std::string& why)
{
    struct stat info;
    const int flags = fcntl(fd.get(), F_GETFL);
    if (flags < 0 || fstat(fd.get(), &info) != 0) {
        why = name + ": not a usable descriptor";
        return Err::kInvalid;
    }
    CW_TRY(check_kind(name, info, why));
    const int access = flags & O_ACCMODE;
    const bool mode_fits = access == O_RDWR || (options.read_only && access == O_RDONLY);
    // O_PATH, O_APPEND and O_NONBLOCK change what reads and writes do; O_DIRECT or O_DSYNC is our own rule.
    const bool direct = (flags & O_DIRECT) != 0 || (flags & O_DSYNC) == O_DSYNC;
    if (!mode_fits || !direct || (flags & (O_PATH | O_APPEND | O_NONBLOCK)) != 0) {
        why = name + ": the descriptor was not opened the way members are";
        return Err::kInvalid;
    }
    if (S_ISBLK(info.st_mode))
        CW_TRY(check_block_device(name, fd.get(), options, why));
    if (fcntl(fd.get(), F_SETFD, FD_CLOEXEC) != 0) {
        why = name + ": not a usable descriptor";
        return Err::kInvalid;
    }
    auto device = FileDevice::adopt(std::move(fd), name);
    if (!device.ok())
        why = name + ": its size cannot be read; check the device";
    return device;
}

}  // namespace cowraid
