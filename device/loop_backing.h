// SPDX-License-Identifier: MIT
#pragma once

#include <sys/stat.h>

#include <string>

namespace cowraid {

// The loop device that has the file of `info` as its backing file, such as "/dev/loop3"; empty when none
// is known. What sysfs says, so a file of another mount namespace may go unnoticed.
std::string loop_device_over(const struct stat& info);

// The file behind a loop device or one of its partitions; empty when `device` is none or nobody says.
std::string backing_file_of(dev_t device);

}  // namespace cowraid
