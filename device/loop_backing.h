// SPDX-License-Identifier: MIT
#pragma once

#include <sys/stat.h>

#include <string>

namespace cowraid {

// The loop device that has the file of `info` as its backing file, such as "/dev/loop3"; empty when none
// is known. What sysfs says, so a file of another mount namespace may go unnoticed.
std::string loop_device_over(const struct stat& info);

// Whether the device is a loop device over a file that belongs neither to root nor to this user, or of which
// nobody can say whose it is. Some desktops let their users set up loop devices.
bool is_loop_of_another(const std::string& device);

// The file behind a loop device or one of its partitions; empty when `device` is none or nobody says.
std::string backing_file_of(dev_t device);

}  // namespace cowraid
