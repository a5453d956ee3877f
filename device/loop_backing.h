// SPDX-License-Identifier: MIT
#pragma once

#include <sys/stat.h>

#include <string>
#include <vector>

namespace cowraid {

// The loop device that has the file of `info` as its backing file, such as "/dev/loop3"; empty when none
// is known.
std::string loop_device_over(const struct stat& info);

// Names of what leads to bytes of the block device `device`, too, beside the other parts of its disk: loop
// devices over the same file or disk, where their parts of it overlap, partitions of those, and what is
// below.
std::vector<std::string> other_ways_to(dev_t device);

// Whether the device is a loop device over a file that belongs neither to root nor to this user, or of which
// nobody can say whose it is. Some desktops let their users set up loop devices.
bool is_loop_of_another(const std::string& device);

// The file behind a loop device or one of its partitions; empty when `device` is none or nobody says.
std::string backing_file_of(dev_t device);

}  // namespace cowraid
