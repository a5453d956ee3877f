// SPDX-License-Identifier: MIT
#include "device/loop_backing.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/unique_fd.h"
#include "device/device_node.h"

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

std::vector<std::string> names_in(const std::string& folder)
{
    std::vector<std::string> names;
    DIR* const directory = opendir(folder.c_str());
    if (directory == nullptr)
        return names;
    while (const dirent* entry = readdir(directory))
        names.emplace_back(entry->d_name);
    closedir(directory);
    return names;
}

uint64_t read_number(const std::string& path)
{
    return strtoull(read_line(path).c_str(), nullptr, 10);
}

// From a file that says "7:3"; 0 when nobody says.
dev_t read_device(const std::string& path)
{
    unsigned parts[2] = {};
    return sscanf(read_line(path).c_str(), "%u:%u", &parts[0], &parts[1]) == 2 ? makedev(parts[0], parts[1])
                                                                               : 0;
}

// Bytes of a file, or of a block device where `inode` is 0.
struct Stretch {
    dev_t device = 0;
    ino_t inode = 0;
    uint64_t begin = 0, end = UINT64_MAX;

    [[nodiscard]] bool is_of_same(const Stretch& other) const
    {
        return device == other.device && inode == other.inode;
    }
    [[nodiscard]] bool overlaps(const Stretch& other) const
    {
        return is_of_same(other) && begin < other.end && other.begin < end;
    }
    // The same bytes as those of what holds this device from `offset` on, `bytes` of it.
    [[nodiscard]] Stretch within(dev_t holder, ino_t holder_inode, uint64_t offset, uint64_t bytes) const
    {
        const auto plus = [](uint64_t left, uint64_t right) {
            return left > UINT64_MAX - right ? UINT64_MAX : left + right;
        };
        return {.device = holder,
                .inode = holder_inode,
                .begin = plus(begin, offset),
                .end = plus(std::min(end, bytes), offset)};
    }
};

// The kernel knows the file also where its name leads elsewhere by now, or nowhere. Without a device node
// the name must do.
bool step_into_backing(const std::string& device, const std::string& backing, Stretch& stretch)
{
    const UniqueFd fd(open(device.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    loop_info64 loop{};
    struct stat file { };
    const bool told = fd.valid() && ioctl(fd.get(), LOOP_GET_STATUS64, &loop) == 0;
    if (!told || (loop.lo_rdevice == 0 && loop.lo_inode == 0)) {
        if (stat(backing.c_str(), &file) != 0)
            return false;
        loop.lo_device = file.st_dev;
        loop.lo_inode = file.st_ino;
        loop.lo_rdevice = S_ISBLK(file.st_mode) ? file.st_rdev : 0;
    }
    const uint64_t bytes = loop.lo_sizelimit == 0 ? UINT64_MAX : loop.lo_sizelimit;
    stretch = loop.lo_rdevice != 0 ? stretch.within(loop.lo_rdevice, 0, loop.lo_offset, bytes)
                                   : stretch.within(loop.lo_device, loop.lo_inode, loop.lo_offset, bytes);
    return true;
}

// From a partition to its disk, from a loop device to what is behind it. False: nothing is below.
bool step_down(Stretch& stretch)
{
    if (stretch.inode != 0)
        return false;
    const std::string entry = sysfs_of(stretch.device);
    if (access((entry + "/partition").c_str(), F_OK) == 0) {
        constexpr uint64_t kSector = 512;
        stretch = stretch.within(read_device(entry + "/../dev"), 0, read_number(entry + "/start") * kSector,
                                 read_number(entry + "/size") * kSector);
        return true;
    }
    const std::string backing = read_line(entry + kBackingFile);
    return !backing.empty() && step_into_backing(block_device_path(stretch.device), backing, stretch);
}

constexpr int kLayersMax = 16;

// `device` first, what nothing is below last.
std::vector<Stretch> layers_of(dev_t device)
{
    std::vector<Stretch> layers{{.device = device}};
    for (Stretch next = layers.front(); layers.size() < kLayersMax && step_down(next);)
        layers.push_back(next);
    return layers;
}

// A disk and its partitions.
std::vector<dev_t> parts_of(const std::string& disk)
{
    const std::string folder = "/sys/block/" + disk;
    std::vector<dev_t> parts{read_device(folder + "/dev")};
    for (const std::string& name : names_in(folder))
        if (access((folder + "/" + name + "/partition").c_str(), F_OK) == 0)
            parts.push_back(read_device(folder + "/" + name + "/dev"));
    return parts;
}

dev_t disk_of(const std::vector<Stretch>& layers)
{
    const bool is_partition = access((sysfs_of(layers[0].device) + "/partition").c_str(), F_OK) == 0;
    return layers[is_partition && layers.size() > 1 ? 1 : 0].device;
}

bool has_backing(const std::string& disk)
{
    return access(("/sys/block/" + disk + kBackingFile).c_str(), F_OK) == 0;
}

}  // namespace

std::string loop_device_over(const struct stat& info)
{
    const Stretch file{.device = info.st_dev, .inode = info.st_ino};
    for (const std::string& name : names_in("/sys/block")) {
        Stretch behind{.device = read_device("/sys/block/" + name + "/dev")};
        if (has_backing(name) && step_down(behind) && behind.is_of_same(file))
            return "/dev/" + name;
    }
    return {};
}

std::vector<std::string> other_ways_to(dev_t device)
{
    const std::vector<Stretch> own = layers_of(device);
    const dev_t own_disk = disk_of(own);
    std::vector<std::string> ways;
    for (const std::string& disk : names_in("/sys/block")) {
        const dev_t number = read_device("/sys/block/" + disk + "/dev");
        // Of the parts of one disk the kernel lets no two be held that overlap.
        if (number == own_disk || (!has_backing(disk) && number != own.back().device))
            continue;
        for (const dev_t part : parts_of(disk))
            if (layers_of(part).back().overlaps(own.back()))
                ways.push_back(block_device_path(part));
    }
    struct stat file { };
    for (const Stretch& layer : own)
        if (const std::string name = layer.inode == 0 ? read_line(sysfs_of(layer.device) + kBackingFile) : "";
            !name.empty() && stat(name.c_str(), &file) == 0 && file.st_dev == own.back().device &&
            file.st_ino == own.back().inode)
            ways.push_back(name);
    return ways;
}

std::string backing_file_of(dev_t device)
{
    const std::string entry = sysfs_of(device);
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
