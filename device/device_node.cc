// SPDX-License-Identifier: MIT
#include "device/device_node.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

namespace cowraid {

namespace {

constexpr const char kNodeFolder[] = "/dev/";

}  // namespace

std::string sysfs_of(dev_t device)
{
    return "/sys/dev/block/" + std::to_string(major(device)) + ":" + std::to_string(minor(device));
}

std::string block_device_path(dev_t device)
{
    char target[PATH_MAX];
    const ssize_t bytes = readlink(sysfs_of(device).c_str(), target, sizeof target);
    if (bytes <= 0)
        return {};
    std::string name(target, static_cast<size_t>(bytes));
    name = name.substr(name.rfind('/') + 1);
    std::replace(name.begin(), name.end(), '!', '/');
    return kNodeFolder + name;
}

UniqueFd shared_node_of(dev_t device)
{
    const std::string path = block_device_path(device);
    const UniqueFd context(fsopen("devtmpfs", FSOPEN_CLOEXEC));
    if (path.empty() || !context.valid() ||
        fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
        return {};
    const UniqueFd root(fsmount(context.get(), FSMOUNT_CLOEXEC, 0));
    if (!root.valid())
        return {};
    UniqueFd node(openat(root.get(), path.c_str() + sizeof kNodeFolder - 1, O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat info { };
    const bool is_it =
        node.valid() && fstat(node.get(), &info) == 0 && S_ISBLK(info.st_mode) && info.st_rdev == device;
    return is_it ? std::move(node) : UniqueFd();
}

}  // namespace cowraid
