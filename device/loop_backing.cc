// SPDX-License-Identifier: MIT
#include "device/loop_backing.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstring>

#include "base/unique_fd.h"

namespace cowraid {

namespace {

constexpr const char* kBackingFile = "/loop/backing_file";

// First line of a small sysfs file, without its end; empty when it cannot be read.
std::string read_line(const std::string& path)
{
    const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    char text[4096];
    const ssize_t bytes = fd.valid() ? read(fd.get(), text, sizeof text) : -1;
    if (bytes <= 0)
        return {};
    return std::string(text, strcspn(std::string(text, static_cast<size_t>(bytes)).c_str(), "\n"));
}

}  // namespace

std::string loop_device_over(const struct stat& info)
{
    DIR* directory = opendir("/sys/block");
    if (directory == nullptr)
        return {};
    std::string found;
    while (const dirent* entry = readdir(directory)) {
        const std::string name = entry->d_name;
        if (!name.starts_with("loop"))
            continue;
        const std::string backing = read_line("/sys/block/" + name + kBackingFile);
        struct stat other;
        if (backing.empty() || stat(backing.c_str(), &other) != 0)
            continue;
        if (other.st_dev == info.st_dev && other.st_ino == info.st_ino) {
            found = "/dev/" + name;
            break;
        }
    }
    closedir(directory);
    return found;
}

std::string backing_file_of(dev_t device)
{
    const std::string entry =
        "/sys/dev/block/" + std::to_string(major(device)) + ":" + std::to_string(minor(device));
    const std::string backing = read_line(entry + kBackingFile);
    return backing.empty() ? read_line(entry + "/.." + kBackingFile) : backing;
}

bool is_loop_of_another(const std::string& device)
{
    const UniqueFd fd(open(device.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat info, file;
    loop_info64 loop;
    if (!fd.valid() || fstat(fd.get(), &info) != 0 || ioctl(fd.get(), LOOP_GET_STATUS64, &loop) != 0)
        return false;  // no loop device, or one without content
    // The name may lead to another file by now.
    return stat(backing_file_of(info.st_rdev).c_str(), &file) != 0 || file.st_ino != loop.lo_inode ||
           file.st_dev != loop.lo_device || (file.st_uid != 0 && file.st_uid != geteuid());
}

}  // namespace cowraid
